import type { Knex } from 'knex'
import type { Statement } from '../../db/batch.ts'
import { isIdShaped } from '../ids.ts'
import type { Candidate } from './telecaller-rules.ts'

export interface Telecaller {
  id: string
  accountId: string
  name: string
  active: boolean
  createdAt: Date
}

/** With the account's row of turns, which automatic assignments lock, where it is the first telecaller. */
export async function insertTelecaller(trx: Knex.Transaction, telecaller: Telecaller): Promise<void> {
  await trx('telecallers').insert({
    id: telecaller.id,
    account_id: telecaller.accountId,
    name: telecaller.name,
    active: telecaller.active,
    created_at: telecaller.createdAt,
  })
  await trx('telecaller_turns').insert({ account_id: telecaller.accountId }).onConflict().ignore()
}

/** Active or not, the oldest first. */
export async function listTelecallers(
  knex: Knex,
  accountId: string,
  afterId: string | undefined,
  limit: number,
): Promise<Telecaller[]> {
  const query = knex('telecallers').where({ account_id: accountId }).orderBy('id').limit(limit)
  if (afterId !== undefined) query.where('id', '>', afterId)
  return (await query).map(toTelecaller)
}

/**
 * Waits for assignments under way, so that none is made to an inactive one after this has answered.
 * @returns undefined when the account has no such telecaller; `changed`: whether it was not so already
 */
export async function updateTelecallerActive(
  trx: Knex.Transaction,
  accountId: string,
  telecallerId: string,
  active: boolean,
): Promise<{ telecaller: Telecaller; changed: boolean } | undefined> {
  if (!isIdShaped(telecallerId)) return undefined
  await trx('telecaller_turns').where({ account_id: accountId }).forUpdate().first()
  const scope = { account_id: accountId, id: telecallerId }
  const row = await trx('telecallers').where(scope).forUpdate().first()
  if (!row) return undefined
  await trx('telecallers').where(scope).update({ active })
  return { telecaller: toTelecaller({ ...row, active }), changed: Boolean(row.active) !== active }
}

/**
 * Locks the accounts' turns and reads who was last. The lock comes first: what is read after it holds every assignment that
 * was committed before, on READ COMMITTED, and the next one waits until this one is committed or given up. An account
 * without telecallers has no row, and nobody waits.
 * @param skipsLocked an account whose turns somebody holds is left out, and nobody waits
 */
export function lockTurnsStatement(accountIds: string[], skipsLocked: boolean): Statement {
  return {
    sql: `SELECT account_id, last_telecaller_id FROM telecaller_turns FORCE INDEX (PRIMARY) WHERE account_id IN (?)
      ORDER BY account_id FOR UPDATE${skipsLocked ? ' SKIP LOCKED' : ''}`,
    values: [accountIds],
  }
}

/**
 * Those of account `a` whose settings are `s`, in one text. Belongs into a statement after `lockTurnsStatement`, in the same
 * transaction.
 */
export const CANDIDATES = `(SELECT GROUP_CONCAT(t.id, ' ', IF(s.assign_strategy = 'least_open', (
    SELECT COUNT(*) FROM entries e WHERE e.account_id = t.account_id AND e.assigned_to = t.id AND e.phase = 'lead'
  ), 0)) FROM telecallers t WHERE t.account_id = a.id AND t.active)`

/** @param text as `CANDIDATES`; null: there are none */
export function toCandidates(text: string | null): Candidate[] {
  const each = text?.split(',').sort() ?? []
  return each.map((one) => {
    const [id, openLeads] = one.split(' ')
    return { id: id!, openLeads: Number(openLeads) }
  })
}

/**
 * Locks the accounts' turns, and compares along. Fails where somebody holds one.
 * @param difference a column, of turns `b`
 */
export function compareTurnsStatement(accountIds: string[], difference: Required<Statement>): Statement {
  return {
    sql: `SELECT ${difference.sql} AS difference FROM telecaller_turns b FORCE INDEX (PRIMARY)
      WHERE b.account_id IN (?) ORDER BY b.account_id FOR UPDATE NOWAIT`,
    values: [...difference.values, accountIds],
  }
}

/** Of accounts whose turns are locked; each has its row. */
export function updateTurnsStatement(turns: { accountId: string; telecallerId: string }[]): Statement {
  return {
    sql: `INSERT INTO telecaller_turns (account_id, last_telecaller_id) VALUES ?
      ON DUPLICATE KEY UPDATE last_telecaller_id = VALUES(last_telecaller_id)`,
    values: [turns.map(({ accountId, telecallerId }) => [accountId, telecallerId])],
  }
}

function toTelecaller(row: Record<string, unknown>): Telecaller {
  return {
    id: row.id as string,
    accountId: row.account_id as string,
    name: row.name as string,
    active: Boolean(row.active),
    createdAt: row.created_at as Date,
  }
}
