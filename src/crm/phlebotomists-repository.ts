import type { Knex } from 'knex'
import { isIdShaped } from '../ids.ts'

export interface PhlebotomistRow {
  id: string
  accountId: string
  name: string
  active: boolean
  createdAt: Date
}

export async function insertPhlebotomist(trx: Knex.Transaction, phlebotomist: PhlebotomistRow): Promise<void> {
  await trx('phlebotomists').insert({
    id: phlebotomist.id,
    account_id: phlebotomist.accountId,
    name: phlebotomist.name,
    active: phlebotomist.active,
    created_at: phlebotomist.createdAt,
  })
}

/**
 * Active or not, the oldest first.
 * @param after the id of the last one seen
 */
export async function listPhlebotomists(
  knex: Knex,
  accountId: string,
  after: string | undefined,
  limit: number,
): Promise<PhlebotomistRow[]> {
  const query = knex('phlebotomists').where({ account_id: accountId }).orderBy('id').limit(limit)
  if (after !== undefined) query.where('id', '>', after)
  return (await query).map(toPhlebotomist)
}

/** The ids of the oldest ones, as they are when it is asked. */
export async function listActivePhlebotomists(knex: Knex, accountId: string, limit: number): Promise<string[]> {
  return knex('phlebotomists').where({ account_id: accountId, active: true }).orderBy('id').limit(limit).pluck('id')
}

/**
 * Waits for assignments under way, so that none is made after this has answered.
 * @returns undefined when the account has no such phlebotomist; `changed`: whether this call has deactivated it
 */
export async function deactivatePhlebotomist(
  trx: Knex.Transaction,
  accountId: string,
  phlebotomistId: string,
): Promise<{ phlebotomist: PhlebotomistRow; changed: boolean } | undefined> {
  if (!isIdShaped(phlebotomistId)) return undefined
  const scope = { account_id: accountId, id: phlebotomistId }
  const row = await trx('phlebotomists').where(scope).forUpdate().first()
  if (!row) return undefined
  await trx('phlebotomists').where(scope).update({ active: false })
  return { phlebotomist: toPhlebotomist({ ...row, active: false }), changed: Boolean(row.active) }
}

/** One who may get bookings, kept from being deactivated until the end of the transaction. */
export async function claimActivePhlebotomist(
  trx: Knex.Transaction,
  accountId: string,
  phlebotomistId: string,
): Promise<PhlebotomistRow | undefined> {
  if (!isIdShaped(phlebotomistId)) return undefined
  const row = await trx('phlebotomists')
    .where({ account_id: accountId, id: phlebotomistId, active: true })
    .forShare()
    .first()
  return row && toPhlebotomist(row)
}

function toPhlebotomist(row: Record<string, unknown>): PhlebotomistRow {
  return {
    id: row.id as string,
    accountId: row.account_id as string,
    name: row.name as string,
    active: Boolean(row.active),
    createdAt: row.created_at as Date,
  }
}
