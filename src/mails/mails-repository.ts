/**
 * Rows of `mails`. A mail is a row in the transaction of the change that it tells of, sent later by the daemon.
 */
import type { Knex } from 'knex'
import type { Statement } from '../../db/batch.ts'
import type { WebhookHealth } from '../webhooks/webhook-health.ts'

export type MailKind = 'warning' | 'deletion'

export interface Mail {
  id: string
  kind: MailKind
  recipient: string
  labName: string
  endpoint: string
  events: string[]
  failingSince: Date
  failedAttempts: number
  lastError: string
  /** null: bound to no party. */
  partyName: string | null
  /** Active webhooks of the account with this endpoint, this one included. */
  webhooksOnUrl: number
  tries: number
  dueAt: Date
}

/**
 * The statement that writes a mail with the facts of this moment. It goes before the change of the webhook's state, so that
 * the webhook still counts among those that share its URL. To the lab's admin, the account's where the lab has none.
 */
export function insertMailStatement(
  mailId: string,
  kind: MailKind,
  webhookId: string,
  health: WebhookHealth,
  now: Date,
): Statement {
  return {
    sql: `
      INSERT INTO mails (id, kind, account_id, webhook_id, recipient, lab_name, endpoint, events, failing_since,
                         failed_attempts, last_error, party_name, webhooks_on_url, created_at, due_at)
      SELECT ?, ?, w.account_id, w.id, COALESCE(l.admin_email, a.admin_email), l.name, w.endpoint,
             (SELECT GROUP_CONCAT(s.event_type ORDER BY s.position, s.event_type) FROM webhook_events s WHERE s.webhook_id = w.id),
             ?, ?, ?, p.name,
             (SELECT COUNT(*) FROM webhooks o WHERE o.account_id = w.account_id AND o.state = 'active' AND o.endpoint = w.endpoint),
             ?, ?
      FROM webhooks w
      JOIN labs l ON l.id = w.lab_id
      JOIN accounts a ON a.id = w.account_id
      LEFT JOIN parties p ON p.id = COALESCE(w.corporate_id, w.organization_id)
      WHERE w.id = ?`,
    values: [mailId, kind, health.firstFailureAt, health.failedAttempts, health.lastError, now, now, webhookId],
  }
}

/**
 * Mails that wait and are due, those first that no try was made of, then the oldest. Nobody is told of a deletion before its
 * warning: that one waits for its next try where it was refused.
 */
export async function listDueMails(knex: Knex, now: Date, limit: number): Promise<Mail[]> {
  const warning = knex('mails as w')
    .whereRaw('w.webhook_id = m.webhook_id AND w.failing_since = m.failing_since AND w.recipient = m.recipient')
    .where('w.kind', 'warning')
    .whereNotNull('w.due_at')
    .select(knex.raw('1'))
  const rows = await knex('mails as m')
    .where('m.due_at', '<=', now)
    .where((told) => void told.whereNot('m.kind', 'deletion').orWhereNotExists(warning))
    // What has failed or taken long before may well do so again: it goes last.
    .orderByRaw('m.tries > 0, m.due_at, m.id')
    .limit(limit)
  return rows.map((row) => ({
    id: row.id,
    kind: row.kind,
    recipient: row.recipient,
    labName: row.lab_name,
    endpoint: row.endpoint,
    events: row.events.split(','),
    failingSince: row.failing_since,
    failedAttempts: row.failed_attempts,
    lastError: row.last_error,
    partyName: row.party_name,
    webhooksOnUrl: row.webhooks_on_url,
    tries: row.tries,
    dueAt: row.due_at,
  }))
}

/**
 * Takes a mail for one try by moving its next one: of several daemons one wins. A crash before `recordMailSent` means that
 * it goes out again, with the same Message-ID.
 */
export async function claimMail(knex: Knex, mail: Mail, nextTryAt: Date): Promise<boolean> {
  const changed = await knex('mails')
    .where({ id: mail.id, due_at: mail.dueAt, tries: mail.tries })
    .update({ due_at: nextTryAt, tries: mail.tries + 1 })
  return changed === 1
}

/** Puts off the next try of a mail that was claimed from `mail`, as long as the claim stands. */
export async function holdMail(knex: Knex, mail: Mail, nextTryAt: Date): Promise<void> {
  await knex('mails')
    .where({ id: mail.id, tries: mail.tries + 1, sent_at: null })
    .whereNotNull('due_at')
    .update({ due_at: nextTryAt })
}

/**
 * The webhook has answered with a 2xx: what its warnings say is over, and those that wait are sent to nobody.
 * @param failingSince it has been failing anew since then, and may have been warned of
 */
export function giveUpWarningsStatement(webhookId: string, failingSince: Date | null): Statement {
  return {
    sql: `UPDATE mails FORCE INDEX (mails_webhook) SET due_at = NULL
          WHERE webhook_id = ? AND kind = 'warning' AND due_at IS NOT NULL AND NOT failing_since <=> ?`,
    values: [webhookId, failingSince],
  }
}

export async function recordMailSent(knex: Knex, mailId: string, now: Date): Promise<void> {
  await knex('mails').where({ id: mailId }).update({ due_at: null, sent_at: now })
}
