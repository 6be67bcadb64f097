/**
 * Finds a patient's records: entries, pre-bookings, bills with their reports, patients. What belongs together goes in one
 * transaction, under the locks under which everybody else changes these rows, so that what is told of a record afterwards is told
 * without the person.
 */
import type { Knex } from 'knex'
import { fullName } from '../patients/person-name.ts'
import { hasEmailOf, isOfSubject, type ErasureSubject } from './erasure-rules.ts'

/** Records that belong together. */
export interface RecordIds {
  entries: string[]
  preBookings: string[]
  bills: string[]
}

export interface Patient {
  id: string
  contact: string
  name: string
}

/** Locked, with the patients of the bills. */
export interface RecordsTogether extends RecordIds {
  patients: string[]
}

/** Entries with the contact behind `after`; only those of the name, where there is one. */
export async function listEntriesOfContact(
  knex: Knex,
  accountId: string,
  subject: ErasureSubject,
  after: string,
  limit: number,
): Promise<{ ids: string[]; last: string | undefined }> {
  const rows = await knex('entries')
    .where({ account_id: accountId, contact: subject.contact })
    .where('id', '>', after)
    .orderBy('id')
    .limit(limit)
    .select('id', 'first_name', 'last_name')
  const ids = rows.filter((row) => isOfSubject(subject, nameOf(row))).map((row) => row.id)
  return { ids, last: rows.length < limit ? undefined : rows.at(-1).id }
}

const nameOf = (row: { first_name: string; last_name: string | null }) => fullName(row.first_name, row.last_name)

/** The same for the e-mail, which has no index: a window of the account's entries is read. */
export async function listEntriesOfEmail(
  knex: Knex,
  accountId: string,
  subject: ErasureSubject,
  after: string,
  limit: number,
): Promise<{ ids: string[]; last: string | undefined }> {
  const rows = await readWindow(knex, 'entries', accountId, after, limit)
  const ids = rows.filter((row) => hasEmailOf(subject, row.email, nameOf(row))).map((row) => row.id)
  return { ids, last: rows.length < limit ? undefined : rows.at(-1).id }
}

const WINDOW_COLUMNS = {
  entries: ['id', 'first_name', 'last_name', 'email'],
  bills: ['id', 'contact', 'patient_name'],
}

async function readWindow(knex: Knex, table: 'entries' | 'bills', accountId: string, after: string, limit: number) {
  return knex(table)
    .where({ account_id: accountId })
    .where('id', '>', after)
    .orderBy('id')
    .limit(limit)
    .select(WINDOW_COLUMNS[table])
}

/** Bills that have the contact, which has no index: a window of the account's bills is read. */
export async function listBillsOfContact(
  knex: Knex,
  accountId: string,
  subject: ErasureSubject,
  after: string,
  limit: number,
): Promise<{ ids: string[]; last: string | undefined }> {
  const rows = await readWindow(knex, 'bills', accountId, after, limit)
  const ids = rows
    .filter((row) => row.contact === subject.contact && isOfSubject(subject, row.patient_name))
    .map((row) => row.id)
  return { ids, last: rows.length < limit ? undefined : rows.at(-1).id }
}

/**
 * Locks the records and all that was made of them: entry, pre-booking, patient, bill, each by id, as everybody does. What is read behind
 * a lock is what whoever had it before has committed.
 */
export async function lockTogether(
  trx: Knex.Transaction,
  accountId: string,
  seeds: RecordIds,
): Promise<RecordsTogether> {
  const known = await readTogether(trx, accountId, seeds)
  const lock = async (table: string, ids: string[]): Promise<string[]> =>
    ids.length === 0
      ? []
      : trx(table).where({ account_id: accountId }).whereIn('id', ids).orderBy('id').forUpdate().pluck('id')
  const entries = await lock('entries', known.entries)
  const preBookings = await lock('pre_bookings', known.preBookings)
  // A bill that was made of them until now is seen here, and no further one can come.
  const made = await readTogether(trx, accountId, { ...known, entries, preBookings })
  const patients = await lock('patients', made.patients)
  const bills = await lock('bills', made.bills)
  return { entries, preBookings, bills, patients }
}

/** Of an entry all its bills, of a bill what it was made of. */
async function readTogether(trx: Knex.Transaction, accountId: string, seeds: RecordIds): Promise<RecordsTogether> {
  const patients = new Set<string>()
  const [entries, preBookings, bills] = [seeds.entries, seeds.preBookings, seeds.bills].map((ids) => new Set(ids))
  // Twice: a deleted bill of the same entry is found through the entry of the one that was named.
  for (let round = 0; round < 2; round++) {
    const rows = [
      ...(await billsWhere(trx, accountId, 'id', bills!)),
      ...(await billsWhere(trx, accountId, 'entry_id', entries!)),
      ...(await billsWhere(trx, accountId, 'pre_booking_id', preBookings!)),
    ]
    for (const row of rows) {
      bills!.add(row.id)
      if (row.entry_id !== null) entries!.add(row.entry_id)
      if (row.pre_booking_id !== null) preBookings!.add(row.pre_booking_id)
      if (row.patient_id !== null) patients.add(row.patient_id)
    }
  }
  return { entries: [...entries!], preBookings: [...preBookings!], bills: [...bills!], patients: [...patients] }
}

async function billsWhere(trx: Knex.Transaction, accountId: string, column: string, ids: Set<string>) {
  if (ids.size === 0) return []
  return trx('bills')
    .where({ account_id: accountId })
    .whereIn(column, [...ids])
    .select('id', 'entry_id', 'pre_booking_id', 'patient_id')
}

/** Bills of these patients. */
export async function listBillsOfPatients(
  trx: Knex.Transaction,
  accountId: string,
  patientIds: string[],
  limit: number,
): Promise<string[]> {
  return trx('bills')
    .where({ account_id: accountId })
    .whereIn('patient_id', patientIds)
    .orderBy('id')
    .limit(limit)
    .forUpdate()
    .pluck('id')
}

/** A family is a handful; a number that stands for none has everybody who gave none. By name, which is not in SQL. */
const PATIENTS_AT_A_TIME = 1000

/** The subject's patients, locked: whoever makes a bill of one waits, and makes another patient then. */
export async function lockPatientsOf(
  trx: Knex.Transaction,
  accountId: string,
  subject: ErasureSubject,
  limit: number,
): Promise<Patient[]> {
  const { contact, patientId } = subject
  const found = trx('patients')
    .where({ account_id: accountId })
    .orderBy('id')
    .forUpdate()
    .select('id', 'contact', 'name')
  const theirs: Patient[] = patientId === null ? [] : await found.clone().where({ id: patientId })
  for (let after = ''; contact !== null && theirs.length < limit;) {
    const rows: Patient[] = await found.clone().where({ contact }).where('id', '>', after).limit(PATIENTS_AT_A_TIME)
    theirs.push(...rows.filter((row) => row.id !== patientId && isOfSubject(subject, row.name)))
    if (rows.length < PATIENTS_AT_A_TIME) break
    after = rows.at(-1)!.id
  }
  return theirs.sort((a, b) => (a.id < b.id ? -1 : 1)).slice(0, limit)
}

/** Reports from before bills, whose file has the report's own id. */
export async function deleteReportsOfPatients(
  trx: Knex.Transaction,
  patientIds: string[],
  limit: number,
): Promise<string[]> {
  const ids: string[] = await trx('reports')
    .whereIn('patient_id', patientIds)
    .whereNull('bill_id')
    .orderBy('id')
    .limit(limit)
    .pluck('id')
  await trx('reports').whereIn('id', ids).delete()
  return ids
}

/**
 * Of locked patients, whose bills have been erased, those of whom nothing else is kept: no bill, no report from before bills. Whoever
 * makes a bill of one waits for the lock.
 */
export async function listLeftOver(trx: Knex.Transaction, ids: string[]): Promise<Patient[]> {
  if (ids.length === 0) return []
  const kept = new Set<string>()
  for (const table of ['bills', 'reports']) {
    for (const id of await trx(table).whereIn('patient_id', ids).distinct('patient_id').pluck('patient_id'))
      kept.add(id)
  }
  const left = ids.filter((id) => !kept.has(id))
  return trx('patients').whereIn('id', left).orderBy('id').select('id', 'contact', 'name')
}

export async function deletePatients(trx: Knex.Transaction, ids: string[]): Promise<void> {
  await trx('patients').whereIn('id', ids).delete()
}
