import type { Knex } from 'knex'
import { whereBeginsWith } from '../catalogue/catalogue-filters.ts'
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
  /** Without a lab behind it: its entries can be walked through their life. Decided when the account is made. */
  sandbox: boolean
  createdAt: Date
}

/** What can change of an account. */
export type AccountChanges = Partial<Pick<Account, 'name' | 'mode' | 'timeZone' | 'adminEmail'>>

export async function insertAccount(knex: Knex, account: Account): Promise<void> {
  await knex('accounts').insert({
    id: account.id,
    name: account.name,
    mode: account.mode,
    time_zone: account.timeZone,
    admin_email: account.adminEmail,
    sandbox: account.sandbox,
    created_at: account.createdAt,
  })
}

export async function findAccount(knex: Knex, accountId: string): Promise<Account | undefined> {
  if (!isIdShaped(accountId)) return undefined
  const row = await knex('accounts').where({ id: accountId }).first()
  return row && toAccount(row)
}

/** Those that there are, in any order. */
export async function findAccounts(knex: Knex, accountIds: string[]): Promise<Account[]> {
  const known = accountIds.filter(isIdShaped)
  return known.length === 0 ? [] : (await knex('accounts').whereIn('id', known)).map(toAccount)
}

/**
 * The oldest first.
 * @param onlyAccountId what an operator key is bound to; undefined: every account
 */
export async function listAccounts(
  knex: Knex,
  onlyAccountId: string | undefined,
  filter: { name?: string | undefined; mode?: AccountMode | undefined },
  afterId: string | undefined,
  limit: number,
): Promise<Account[]> {
  const query = knex('accounts').orderBy('id').limit(limit)
  if (onlyAccountId !== undefined) query.where({ id: onlyAccountId })
  if (filter.name !== undefined) query.modify(whereBeginsWith, 'name', filter.name)
  if (filter.mode !== undefined) query.where({ mode: filter.mode })
  if (afterId !== undefined) query.where('id', '>', afterId)
  return (await query).map(toAccount)
}

/** Only the columns that change are written: two changes of different ones at once both hold. */
export async function updateAccount(
  trx: Knex.Transaction,
  accountId: string,
  { name, mode, timeZone, adminEmail }: AccountChanges,
): Promise<Account> {
  const columns = { name, mode, time_zone: timeZone, admin_email: adminEmail }
  await trx('accounts')
    .where({ id: accountId })
    .update({ id: accountId, ...columns })
  return toAccount(await trx('accounts').where({ id: accountId }).first())
}

/** @param row all columns of `accounts` */
export function toAccount(row: Record<string, unknown>): Account {
  return {
    id: row.id as string,
    name: row.name as string,
    mode: row.mode as AccountMode,
    timeZone: row.time_zone as string,
    adminEmail: row.admin_email as string,
    sandbox: Boolean(row.sandbox),
    createdAt: row.created_at as Date,
  }
}
