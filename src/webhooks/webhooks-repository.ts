/**
 * Rows of webhooks, their events, secrets and party guards. For `active_from` and `inactive_from` see `routing-time.ts`.
 */
import type { Knex } from 'knex'
import { isDuplicate } from '../../db/connection.ts'
import type { EventType } from '../events/event-types.ts'
import { isMessageIn } from '../events/message-payloads.ts'
import { ENDING_TIME, endingTimeValues, readBeginning } from '../events/routing-time.ts'
import { makeLaneDue } from '../deliveries/lanes-repository.ts'
import { isIdShaped } from '../ids.ts'
import type { Overlap, WebhookScope } from './webhook-rules.ts'
import { insertSecret } from './webhook-secrets-repository.ts'

export interface Webhook {
  id: string
  accountId: string
  labId: string
  corporateId: string | null
  organizationId: string | null
  endpoint: string
  events: EventType[]
  createdAt: Date
  updatedAt: Date
}

/** What an auto-deleted webhook keeps of its failing. */
export interface DeactivatedWebhook extends Webhook {
  deactivatedAt: Date
  firstFailureAt: Date
  failedAttempts: number
  lastError: string
}

/** A webhook under its row's lock. */
export interface ClaimedWebhook extends Webhook {
  epoch: number
}

/** An active webhook with its lane and its sealed secret. Its events of a party are guarded by `claimPartyEvents`. */
export async function insertWebhook(trx: Knex.Transaction, webhook: Webhook, sealedSecret: Buffer): Promise<void> {
  const activeFrom = await readBeginning(trx, webhook.labId)
  await trx('webhooks').insert({
    id: webhook.id,
    account_id: webhook.accountId,
    lab_id: webhook.labId,
    corporate_id: webhook.corporateId,
    organization_id: webhook.organizationId,
    endpoint: webhook.endpoint,
    state: 'active',
    active_from: activeFrom,
    created_at: webhook.createdAt,
    updated_at: webhook.updatedAt,
  })
  await trx('lanes').insert({ webhook_id: webhook.id })
  await trx('webhook_events').insert(
    webhook.events.map((eventType, position) => ({
      webhook_id: webhook.id,
      event_type: eventType,
      lab_id: webhook.labId,
      position,
    })),
  )
  await insertSecret(trx, webhook.id, sealedSecret, webhook.createdAt)
}

/**
 * Takes each of the webhook's events for its party. The primary key decides between calls at once, and the rows go in in one
 * order, so that two calls with the same events wait for each other instead of locking up.
 * @returns the events that another active webhook of the party has; none: all are taken
 */
export async function claimPartyEvents(trx: Knex.Transaction, webhook: Webhook, partyId: string): Promise<EventType[]> {
  const scope = { account_id: webhook.accountId, lab_id: webhook.labId, party_id: partyId }
  const events = [...webhook.events].sort()
  try {
    await trx('webhook_party_guards').insert(
      events.map((eventType) => ({ ...scope, event_type: eventType, webhook_id: webhook.id })),
    )
    return []
  } catch (error) {
    if (!isDuplicate(error)) throw error
    // The refused insert holds the other's row locked, so that it can't be gone by now. Read as it is, locked: a plain read may
    // come a moment before MariaDB shows what was committed.
    const rows = await trx('webhook_party_guards')
      .where(scope)
      .whereIn('event_type', events)
      .forShare()
      .select('event_type')
    // An active webhook without its guards would be one too many for ever.
    if (rows.length === 0) throw error
    const taken = new Set(rows.map((row) => row.event_type))
    return webhook.events.filter((eventType) => taken.has(eventType))
  }
}

/**
 * How many other active webhooks have each of the events of a webhook without a party, where there are any. What is left of a party's
 * gets its events too, but no message beside one without a party.
 */
export async function countOverlaps(trx: Knex.Transaction, webhook: Webhook): Promise<Map<EventType, Overlap>> {
  const rows = await trx('webhook_events as s')
    .join('webhooks as w', 'w.id', 's.webhook_id')
    .where({ 's.lab_id': webhook.labId, 'w.account_id': webhook.accountId, 'w.state': 'active' })
    .whereRaw(`((w.corporate_id IS NULL AND w.organization_id IS NULL) OR NOT (${isMessageIn('s.event_type')}))`)
    .whereIn('s.event_type', webhook.events)
    .whereNot('w.id', webhook.id)
    .groupBy('s.event_type')
    .select('s.event_type', {
      others: trx.raw('COUNT(*)'),
      bound: trx.raw('COUNT(COALESCE(w.corporate_id, w.organization_id))'),
    })
  return new Map(rows.map((row) => [row.event_type, { all: Number(row.others), bound: Number(row.bound) }]))
}

/** The active webhooks of a lab that the scope covers, the oldest first. */
export async function listActiveWebhooks(
  knex: Knex,
  accountId: string,
  labId: string,
  scope: WebhookScope,
): Promise<Webhook[]> {
  const rows = await knex('webhooks')
    .where({ account_id: accountId, lab_id: labId, state: 'active' })
    .modify(withinScope, scope)
    .orderBy('id')
  return withEvents(knex, rows)
}

/** The auto-deleted webhooks of a lab that the scope covers, the newest first. */
export async function listDeactivatedWebhooks(
  knex: Knex,
  accountId: string,
  labId: string,
  scope: WebhookScope,
): Promise<DeactivatedWebhook[]> {
  const rows = await knex('webhooks')
    .where({ account_id: accountId, lab_id: labId, state: 'auto_deleted' })
    .modify(withinScope, scope)
    .orderBy([
      { column: 'deactivated_at', order: 'desc' },
      { column: 'id', order: 'desc' },
    ])
  const webhooks = await withEvents(knex, rows)
  return webhooks.map((webhook, index) => ({
    ...webhook,
    deactivatedAt: rows[index].deactivated_at,
    firstFailureAt: rows[index].first_failure_at,
    failedAttempts: rows[index].failed_attempts,
    lastError: rows[index].last_error,
  }))
}

/** Of rows of `webhooks`. */
export async function withEvents(knex: Knex, rows: Record<string, any>[]): Promise<Webhook[]> {
  const ids = rows.map((row) => row.id)
  const eventRows = await knex('webhook_events')
    .whereIn('webhook_id', ids)
    .orderBy(['webhook_id', 'position', 'event_type'])
    .select('webhook_id', 'event_type')
  const eventsOf = Map.groupBy(eventRows, (row) => row.webhook_id)
  return rows.map((row) => ({
    id: row.id,
    accountId: row.account_id,
    labId: row.lab_id,
    corporateId: row.corporate_id,
    organizationId: row.organization_id,
    endpoint: row.endpoint,
    events: (eventsOf.get(row.id) ?? []).map((event) => event.event_type),
    createdAt: row.created_at,
    updatedAt: row.updated_at,
  }))
}

export type WebhookState = 'active' | 'auto_deleted'

/** Locks a webhook in one of these states. The first lock of the order webhook, lane, others. */
export async function claimWebhook(
  trx: Knex.Transaction,
  accountId: string,
  labId: string,
  webhookId: string,
  scope: WebhookScope,
  states: WebhookState[] = ['active', 'auto_deleted'],
): Promise<ClaimedWebhook | undefined> {
  if (!isIdShaped(webhookId)) return undefined
  const row = await trx('webhooks')
    .where({ id: webhookId, account_id: accountId, lab_id: labId })
    .modify(withinScope, scope)
    .whereIn('state', states)
    .forUpdate()
    .first()
  if (!row) return undefined
  const [webhook] = await withEvents(trx, [row])
  return { ...webhook!, epoch: row.epoch }
}

/**
 * Deletes a claimed webhook for good, whatever waits: the raised epoch makes its pending deliveries old, and its lane, due
 * now, discards them. An auto-deleted one has been out of the routing since then, and stays so from then.
 */
export async function recordDeletion(trx: Knex.Transaction, webhookId: string, now: Date): Promise<void> {
  await trx('webhooks')
    .where({ id: webhookId })
    .update({
      state: 'deleted',
      epoch: trx.raw('epoch + 1'),
      inactive_from: trx.raw(`COALESCE(inactive_from, ${ENDING_TIME})`, endingTimeValues(webhookId, now)),
      updated_at: now,
    })
  await makeLaneDue(trx, webhookId, now)
  await trx('webhook_party_guards').where({ webhook_id: webhookId }).del()
}

/**
 * Makes a claimed auto-deleted webhook active, with a clean record. Events count for it from this statement on; copies that
 * waited when it went are of an older epoch, and its lane, due now, discards them. Its party's events are still to be claimed.
 */
export async function recordReactivation(trx: Knex.Transaction, webhookId: string, now: Date): Promise<void> {
  // The time that ends now, for the log: its events are never sent to this webhook. Its end is the new beginning, exactly.
  const { lab_id: labId } = await trx('webhooks').where({ id: webhookId }).first('lab_id')
  const activeFrom = await readBeginning(trx, labId)
  await trx.raw(
    `INSERT INTO webhook_inactivity (webhook_id, inactive_from, active_from, deactivated_at)
     SELECT w.id, w.inactive_from, ?, w.deactivated_at FROM webhooks w WHERE w.id = ?`,
    [activeFrom, webhookId],
  )
  await trx('webhooks')
    .where({ id: webhookId })
    .update({
      state: 'active',
      epoch: trx.raw('epoch + 1'),
      active_from: activeFrom,
      inactive_from: null,
      first_failure_at: null,
      failed_attempts: 0,
      last_error: null,
      warned_at: null,
      deactivated_at: null,
      updated_at: now,
    })
  await trx('lanes').where({ webhook_id: webhookId }).update({ eager_until: null })
  await makeLaneDue(trx, webhookId, now)
}

/** Adds the conditions of a scope to a query on webhooks. */
export function withinScope(query: Knex.QueryBuilder, scope: WebhookScope): void {
  if (scope === 'whole_lab') return
  if (scope === 'every_party') {
    void query.where((either) => either.whereNotNull('corporate_id').orWhereNotNull('organization_id'))
  } else if ('corporateId' in scope) void query.where({ corporate_id: scope.corporateId })
  else void query.where({ organization_id: scope.organizationId })
}
