/**
 * Removes what has served its time outside the delivery log: keys, tokens, one-time passwords, guards of past days, mails.
 */
import type { Knex } from 'knex'
import { firstIdOf } from '../ids.ts'
import type { Batch, Position, PurgeStep } from './purge-step.ts'
import type { Cutoffs } from './retention-rules.ts'

export function purgeSteps(cutoffs: Cutoffs): PurgeStep[] {
  return [
    oldest('idempotency_keys', 'created_at', 'created_at < ?', [cutoffs.idempotencyKeys]),
    // Also used ones of a family that lives: one that comes back later still names its family.
    oldest('refresh_tokens', 'expires_at', 'expires_at < ?', [cutoffs.refreshTokens]),
    {
      name: 'refresh_token_families',
      remove: (trx, after, limit) => removeTokenFamilies(trx, cutoffs.tokenFamilies, after, limit),
    },
    oldest('otp_codes', 'expires_at', 'expires_at < ?', [cutoffs.otpCodes]),
    oldest('otp_tokens', 'created_at', 'created_at < ?', [cutoffs.otpTokens]),
    { name: 'otp_contacts', remove: (trx, after, limit) => removeOtpContacts(trx, cutoffs.otpContacts, after, limit) },
    // One that still waits is given up first, by its sender.
    oldest('sms_messages', 'id', 'id < ? AND due_at IS NULL', [firstIdOf(cutoffs.sms.getTime())]),
    oldest('entry_day_guards', 'day', 'day < ?', [cutoffs.guardDay]),
    oldest('mails', 'id', 'id < ? AND due_at IS NULL AND COALESCE(sent_at, created_at) < ?', [
      firstIdOf(cutoffs.log.getTime()),
      cutoffs.log,
    ]),
    oldest('recoveries', 'id', 'id < ? AND finished_at < ?', [firstIdOf(cutoffs.log.getTime()), cutoffs.log]),
    // A row for each auto-deletion that was taken back: few enough to be read from end to end.
    oldest('webhook_inactivity', 'webhook_id', 'active_from < ?', [cutoffs.log]),
  ]
}

/**
 * Rows from the beginning of an index, all of which may go. Few or none stay before them, so no position is kept.
 * @param key a column that the index begins with. The order makes the server walk it, and not the table
 */
function oldest(table: string, key: string, condition: string, values: (string | Date)[]): PurgeStep {
  return {
    name: table,
    async remove(trx, _after, limit) {
      const sql = `DELETE FROM ${table} WHERE ${condition} ORDER BY ${key} LIMIT ?`
      const [{ affectedRows }] = await trx.raw(sql, [...values, limit])
      return { looked: affectedRows, removed: affectedRows, position: undefined }
    },
  }
}

/** Families whose last token is gone. */
async function removeTokenFamilies(
  trx: Knex.Transaction,
  before: Date,
  after: Position | undefined,
  limit: number,
): Promise<Batch> {
  const rows = await trx('refresh_token_families')
    .where('id', '>', after?.[0] ?? '')
    .where('id', '<', firstIdOf(before.getTime()))
    .orderBy('id')
    .limit(limit)
    .forUpdate()
    .skipLocked()
    .select('id')
  const ids = rows.map((row) => row.id as string)
  const alive = await trx('refresh_tokens').whereIn('family_id', ids).distinct('family_id')
  const kept = new Set(alive.map((row) => row.family_id))
  const expired = ids.filter((id) => !kept.has(id))
  const removed = await trx('refresh_token_families').whereIn('id', expired).delete()
  return { looked: ids.length, removed, position: ids.slice(-1) }
}

/**
 * Contacts of which no code counts any more. One with wrong tries since its last login stays: forgetting it would set back a
 * count that only a login may.
 */
async function removeOtpContacts(
  trx: Knex.Transaction,
  before: Date,
  after: Position | undefined,
  limit: number,
): Promise<Batch> {
  const query = trx('otp_contacts').where({ failures_in_row: 0 }).where('created_at', '<', before)
  if (after) {
    const [createdAt, hash] = after
    void query
      .where('created_at', '>=', createdAt!)
      .where((behind) => behind.where('created_at', '>', createdAt!).orWhere('contact_hash', '>', hash!))
  }
  const rows = await query
    .orderBy(['created_at', 'contact_hash'])
    .limit(limit)
    .forUpdate()
    .skipLocked()
    .select('contact_hash', 'created_at')
  const last = rows.at(-1)
  if (!last) return { looked: 0, removed: 0, position: after }
  const hashes = rows.map((row) => row.contact_hash as Buffer)
  const codes = await trx('otp_codes').whereIn('contact_hash', hashes).distinct('contact_hash')
  const kept = new Set(codes.map((row) => row.contact_hash.toString('hex')))
  const expired = hashes.filter((hash) => !kept.has(hash.toString('hex')))
  const removed = await trx('otp_contacts').whereIn('contact_hash', expired).delete()
  return { looked: rows.length, removed, position: [last.created_at, last.contact_hash] }
}
