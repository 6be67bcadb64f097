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
