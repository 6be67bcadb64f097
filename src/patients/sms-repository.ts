/**
 * Rows of `sms_messages`. A message is a row in the transaction that made it due, and is handed over after it.
 */
import type { Knex } from 'knex'
import { SERVER_TIME_MS } from '../../db/server-time.ts'

export interface Sms {
  id: string
  /** Recipient and text, encrypted. */
  content: Buffer
  tries: number
  dueAt: Date
  /** From then on nobody wants it any more. */
  expiresAt: Date
}

/**
 * @param sms content null: nobody is to get it. The row is written all the same, so that a request takes as long for a number
 * that no patient has
 */
export async function insertSms(
  trx: Knex.Transaction,
  sms: { id: string; accountId: string; content: Buffer | null; createdAt: Date; expiresAt: Date },
): Promise<void> {
  await trx('sms_messages').insert({
    id: sms.id,
    account_id: sms.accountId,
    content: sms.content,
    created_at: sms.createdAt,
    expires_at: sms.expiresAt,
    due_at: sms.content === null ? null : sms.createdAt,
  })
}

/** One that was just written, and that nobody has tried yet: due, whatever has become of the clock since. */
export async function findNewSms(knex: Knex, smsId: string): Promise<Sms | undefined> {
  const row = await knex('sms_messages').where({ id: smsId, tries: 0 }).whereNotNull('due_at').first()
  return row && toSms(row)
}

/** Messages that wait and are due, the oldest first. */
export async function listDueSms(knex: Knex, now: Date, limit: number): Promise<Sms[]> {
  const rows = await knex('sms_messages')
    .where('due_at', '<=', now)
    .where('expires_at', '>', now)
    .orderBy(['due_at', 'id'])
    .limit(limit)
  return rows.map(toSms)
}

/** Takes a message for one try by moving its next one: of several processes one wins. */
export async function claimSms(knex: Knex, sms: Sms, nextTryAt: Date): Promise<boolean> {
  const changed = await knex('sms_messages')
    .where({ id: sms.id, due_at: sms.dueAt, tries: sms.tries })
    .update({ due_at: nextTryAt, tries: sms.tries + 1 })
  return changed === 1
}

/** Its content is of no more use to anybody but a thief. */
export async function recordSmsSent(knex: Knex, smsId: string, now: Date): Promise<void> {
  await knex('sms_messages').where({ id: smsId }).update({ content: null, due_at: null, sent_at: now })
}

/** One that waits for a try is not sent any more. @returns how many did */
export async function giveUpSms(trx: Knex.Transaction, smsId: string): Promise<number> {
  return trx('sms_messages').where({ id: smsId }).whereNotNull('due_at').update({ content: null, due_at: null })
}

/** By the server's own clock: that of a process may not have followed it yet. */
const IS_AHEAD = `expires_at > ${SERVER_TIME_MS} + INTERVAL 10 MINUTE`

/**
 * Messages whose code has expired are given up, and their content goes; also those whose code was made while the clock was ahead, and
 * serves nobody any more.
 * @param latest when a code of now expires
 * @returns how many
 */
export async function recordSmsExpired(knex: Knex, now: Date, latest: Date): Promise<number> {
  return knex('sms_messages')
    .whereNotNull('due_at')
    .where((over) =>
      over.where('expires_at', '<=', now).orWhere((ahead) => ahead.where('expires_at', '>', latest).whereRaw(IS_AHEAD)),
    )
    .update({ content: null, due_at: null })
}

function toSms(row: Record<string, unknown>): Sms {
  return {
    id: row.id as string,
    content: row.content as Buffer,
    tries: row.tries as number,
    dueAt: row.due_at as Date,
    expiresAt: row.expires_at as Date,
  }
}
