/**
 * Who stands in records that are erased, and of whom nothing else is kept.
 */
import type { Knex } from 'knex'
import { fullName } from '../patients/person-name.ts'
import { nameKey } from './erased-people.ts'
import type { Person } from './erasure-rules.ts'

/** A family is a handful; of a number that hundreds were given, some are enough to keep it. */
const MOST_OF_A_CONTACT = 1000

/** Whose contacts these records have, before they are erased. */
export async function listPeopleOf(trx: Knex.Transaction, entries: string[], bills: string[]): Promise<Person[]> {
  const ofEntries = await trx('entries').whereIn('id', entries).select('contact', 'first_name', 'last_name')
  const ofBills = await trx('bills').whereIn('id', bills).select('contact', 'patient_name', 'patient_id')
  const people: Person[] = []
  for (const { contact, first_name: first, last_name: last } of ofEntries) {
    if (contact !== null) people.push({ contact, name: fullName(first, last), isOfRecord: true })
  }
  for (const { contact, patient_name: name, patient_id: id } of ofBills) {
    if (contact !== null) people.push({ contact, name, isOfRecord: true, patientId: id ?? undefined })
  }
  return people
}

/**
 * Of these people those of whom nothing is kept: whoever is known from a record alone may have another entry, or be a patient whom
 * other bills need, also under another name or number by now.
 * @param shared contacts that somebody still has
 */
export async function listGone(
  trx: Knex.Transaction,
  accountId: string,
  people: Person[],
  shared: Set<string>,
): Promise<Person[]> {
  const uncertain = people.filter(({ isOfRecord }) => isOfRecord)
  if (uncertain.length === 0) return people
  const patientIds = uncertain.flatMap(({ patientId }) => patientId ?? [])
  const patients = new Set<string>(
    patientIds.length === 0
      ? []
      : await trx('patients').where({ account_id: accountId }).whereIn('id', patientIds).pluck('id'),
  )
  const kept = new Set<Person>()
  for (const [contact, ofContact] of Map.groupBy(uncertain, (person) => person.contact)) {
    const names = shared.has(contact) ? await listNames(trx, accountId, contact) : new Set()
    for (const person of ofContact) {
      if (names.has(nameKey(person.name)) || patients.has(person.patientId ?? '')) kept.add(person)
    }
  }
  return people.filter((person) => !kept.has(person))
}

/** Of these contacts those that a patient or an entry still has. */
export async function listShared(trx: Knex.Transaction, accountId: string, contacts: string[]): Promise<Set<string>> {
  if (contacts.length === 0) return new Set()
  const of = (table: string) =>
    trx(table).where({ account_id: accountId }).whereIn('contact', contacts).distinct('contact')
  return new Set([...(await of('patients').pluck('contact')), ...(await of('entries').pluck('contact'))])
}

/** Of patients and entries that have the contact. */
async function listNames(trx: Knex.Transaction, accountId: string, contact: string): Promise<Set<string>> {
  const of = { account_id: accountId, contact }
  const patients: string[] = await trx('patients').where(of).limit(MOST_OF_A_CONTACT).pluck('name')
  const entries = await trx('entries').where(of).limit(MOST_OF_A_CONTACT).select('first_name', 'last_name')
  return new Set([...patients, ...entries.map((row) => fullName(row.first_name, row.last_name))].map(nameKey))
}
