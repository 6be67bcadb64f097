import type { Knex } from 'knex'
import { isIdShaped } from '../ids.ts'

export interface Patient {
  id: string
  accountId: string
  /** 10 digits. Several patients can share one. */
  contact: string
  name: string
  createdAt: Date
}

export async function insertPatient(knex: Knex, patient: Patient): Promise<void> {
  await knex('patients').insert({
    id: patient.id,
    account_id: patient.accountId,
    contact: patient.contact,
    name: patient.name,
    created_at: patient.createdAt,
  })
}

export async function findPatient(knex: Knex, accountId: string, patientId: string): Promise<Patient | undefined> {
  if (!isIdShaped(patientId)) return undefined
  const row = await knex('patients').where({ account_id: accountId, id: patientId }).first()
  return row && toPatient(row)
}

/** The oldest first. */
export async function listPatients(
  knex: Knex,
  accountId: string,
  contact: string | undefined,
  afterId: string | undefined,
  limit: number,
): Promise<Patient[]> {
  // Of two keys that begin with the account MySQL takes the one that it has to sort.
  const table = contact === undefined ? knex.raw('patients FORCE INDEX (patients_account)') : 'patients'
  const query = knex(table as string)
    .where({ account_id: accountId })
    .orderBy('id')
    .limit(limit)
  if (contact !== undefined) query.where({ contact })
  if (afterId !== undefined) query.where('id', '>', afterId)
  return (await query).map(toPatient)
}

/**
 * Only the columns that change are written: two changes of different ones at once both hold.
 * @returns undefined when the patient was erased meanwhile
 */
export async function updatePatient(
  trx: Knex.Transaction,
  patient: Patient,
  { contact, name }: Partial<Pick<Patient, 'contact' | 'name'>>,
): Promise<Patient | undefined> {
  const scope = { account_id: patient.accountId, id: patient.id }
  if ((await trx('patients').where(scope).update({ id: patient.id, contact, name })) === 0) return undefined
  return toPatient(await trx('patients').where(scope).first())
}

function toPatient(row: Record<string, any>): Patient {
  return { id: row.id, accountId: row.account_id, contact: row.contact, name: row.name, createdAt: row.created_at }
}

/** Whether any patient of the account has the contact. */
export async function isPatientContact(knex: Knex, accountId: string, contact: string): Promise<boolean> {
  return (await knex('patients').where({ account_id: accountId, contact }).first('id')) !== undefined
}
