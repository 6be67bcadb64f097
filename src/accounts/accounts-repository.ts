import type { Knex } from 'knex'
import { isIdShaped } from '../ids.ts'

export type AccountMode = 'catch_all' | 'party_scoped'

/** An integrator's tenant. */
export interface Account {
  id: string
  name: string
  mode: AccountMode
  /** IANA name; decides what "today" is and how a time without an offset is read. */
  timeZone: string
  adminEmail: string
  createdAt: Date
}

export async function insertAccount(knex: Knex, account: Account): Promise<void> {
  await knex('accounts').insert({
    id: account.id,
    name: account.name,
    mode: account.mode,
    time_zone: account.timeZone,
    admin_email: account.adminEmail,
    created_at: account.createdAt,
  })
}

export async function findAccount(knex: Knex, accountId: string): Promise<Account | undefined> {
  if (!isIdShaped(accountId)) return undefined
  const row = await knex('accounts').where({ id: accountId }).first()
  return row && toAccount(row)
}

/** @param onlyAccountId what an operator key is bound to; undefined: every account */
export async function listAccounts(knex: Knex, onlyAccountId: string | undefined): Promise<Account[]> {
  const query = knex('accounts').orderBy('id')
  if (onlyAccountId !== undefined) query.where({ id: onlyAccountId })
  return (await query).map(toAccount)
}

function toAccount(row: Record<string, unknown>): Account {
  return {
    id: row.id as string,
    name: row.name as string,
    mode: row.mode as AccountMode,
    timeZone: row.time_zone as string,
    adminEmail: row.admin_email as string,
    createdAt: row.created_at as Date,
  }
}
