/**
 * Whose bill it is: a patient of the account is known by contact and name.
 */
import type { Knex } from 'knex'
import { newId } from '../ids.ts'
import { insertPatient } from './patients-repository.ts'
import { comparableName } from './person-name.ts'

/**
 * The patient with this contact and name, made where there is none. Names are compared as `comparableName` does: a family
 * shares a contact, and one person is written in several ways.
 *
 * A new one is made under the lock of the account's row, after a second look: two bills at once make one patient.
 * @returns the patient's id
 */
export async function claimPatient(
  trx: Knex.Transaction,
  accountId: string,
  { contact, name }: { contact: string; name: string },
  now: Date,
): Promise<string> {
  const known = await findByName(trx, accountId, contact, name)
  if (known !== undefined) return known
  await trx('accounts').where({ id: accountId }).forUpdate().first('id')
  const made = await findByName(trx, accountId, contact, name)
  if (made !== undefined) return made
  const id = newId(now.getTime())
  await insertPatient(trx, { id, accountId, contact, name, createdAt: now })
  return id
}

/** Of several patients with the contact the first one. */
export async function findPatientIdOfContact(
  trx: Knex.Transaction,
  accountId: string,
  contact: string,
): Promise<string | undefined> {
  return (await trx('patients').where({ account_id: accountId, contact }).orderBy('id').first('id'))?.id
}

async function findByName(trx: Knex.Transaction, accountId: string, contact: string, name: string) {
  // Locked: a patient who is erased at this moment is found with all bills, or not found here.
  const rows = await trx('patients')
    .where({ account_id: accountId, contact })
    .orderBy('id')
    .forUpdate()
    .select('id', 'name')
  return rows.find((row) => comparableName(row.name) === comparableName(name))?.id as string | undefined
}
