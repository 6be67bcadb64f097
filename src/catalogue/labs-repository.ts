import type { Knex } from 'knex'
import { isIdShaped } from '../ids.ts'

/** A lab is a branch: `labID` and `branchID` on the wire. */
export interface Lab {
  id: string
  accountId: string
  name: string
  contact: string
  /** Null: the account's. */
  adminEmail: string | null
  active: boolean
  createdAt: Date
}

/** What can change of a lab. */
export type LabChanges = Partial<Pick<Lab, 'name' | 'contact' | 'adminEmail' | 'active'>>

export async function insertLab(knex: Knex, lab: Lab): Promise<void> {
  await knex('labs').insert({
    id: lab.id,
    account_id: lab.accountId,
    name: lab.name,
    contact: lab.contact,
    admin_email: lab.adminEmail,
    active: lab.active,
    created_at: lab.createdAt,
  })
}

/** A lab of the account, active or not. */
export async function findLab(knex: Knex, accountId: string, labId: string): Promise<Lab | undefined> {
  if (!isIdShaped(labId)) return undefined
  const row = await knex('labs').where({ account_id: accountId, id: labId }).first()
  return row && toLab(row)
}

/** For the operator, whose key decides what it reaches: the one finder without an account. */
export async function findLabOfAnyAccount(knex: Knex, labId: string): Promise<Lab | undefined> {
  if (!isIdShaped(labId)) return undefined
  const row = await knex('labs').where({ id: labId }).first()
  return row && toLab(row)
}

export async function listActiveLabs(knex: Knex, accountId: string): Promise<Lab[]> {
  const rows = await knex('labs').where({ account_id: accountId, active: true }).orderBy(['name', 'id'])
  return rows.map(toLab)
}

/** Active or not, the oldest first. */
export async function listLabs(
  knex: Knex,
  accountId: string,
  active: boolean | undefined,
  afterId: string | undefined,
  limit: number,
): Promise<Lab[]> {
  const query = knex('labs').where({ account_id: accountId }).orderBy('id').limit(limit)
  if (active !== undefined) query.where({ active })
  if (afterId !== undefined) query.where('id', '>', afterId)
  return (await query).map(toLab)
}

/** Only the columns that change are written: two changes of different ones at once both hold. */
export async function updateLab(
  trx: Knex.Transaction,
  lab: Lab,
  { name, contact, adminEmail, active }: LabChanges,
): Promise<Lab> {
  const scope = { account_id: lab.accountId, id: lab.id }
  await trx('labs').where(scope).update({ id: lab.id, name, contact, admin_email: adminEmail, active })
  return toLab(await trx('labs').where(scope).first())
}

/**
 * Keeps the lab's catalogue as it is until the transaction ends, for what changes many rows of it after a look at them. Its
 * first lock. Single changes share it (`shareCatalogue`), so that none comes in between.
 */
export async function claimCatalogue(trx: Knex.Transaction, lab: Lab): Promise<void> {
  await trx('labs').where({ account_id: lab.accountId, id: lab.id }).forUpdate().first('id')
}

export async function shareCatalogue(trx: Knex.Transaction, lab: Lab): Promise<void> {
  await trx('labs').where({ account_id: lab.accountId, id: lab.id }).forShare().first('id')
}

function toLab(row: Record<string, unknown>): Lab {
  return {
    id: row.id as string,
    accountId: row.account_id as string,
    name: row.name as string,
    contact: row.contact as string,
    adminEmail: row.admin_email as string | null,
    active: Boolean(row.active),
    createdAt: row.created_at as Date,
  }
}
