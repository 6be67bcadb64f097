/**
 * Takes a person out of locked records. One that holds nothing of anybody any more, because it was erased before, is left as it is.
 */
import type { Knex } from 'knex'
import { dayGuardsOf } from '../crm/entry-rules.ts'
import { ERASED_NAME } from './erasure-rules.ts'

const DAY_MS = 86_400_000

/** What is left in a record's own columns. */
const EMPTIED = {
  entries: {
    first_name: ERASED_NAME,
    last_name: null,
    contact: null,
    email: null,
    integrator_id: null,
    details: '{}',
  },
  // The barcode's hash stays: it is unique, and the tube still has its label.
  pre_bookings: {
    integrator_id: '',
    first_name: ERASED_NAME,
    last_name: null,
    gender: 'other',
    age: 0,
    age_type: 'year',
    barcode: null,
  },
  bills: { patient_id: null, patient_name: ERASED_NAME, contact: null, integrator_id: null },
}

type Table = keyof typeof EMPTIED

async function listHolding(trx: Knex.Transaction, table: Table, ids: string[]): Promise<string[]> {
  if (ids.length === 0) return []
  return trx(table)
    .whereIn('id', ids)
    .whereNot((empty) => {
      for (const [column, value] of Object.entries(EMPTIED[table])) {
        if (value === null) void empty.whereNull(column)
        else void empty.where(column, value)
      }
    })
    .orderBy('id')
    .pluck('id')
}

async function empty(trx: Knex.Transaction, table: Table, ids: string[], now: Date): Promise<void> {
  const changed = { version: trx.raw('version + 1'), updated_at: now }
  await trx(table)
    .whereIn('id', ids)
    .update({ ...EMPTIED[table], ...changed })
}

/** @returns how many there was something in, and how many items and day guards were changed and removed with them */
export async function eraseEntries(
  trx: Knex.Transaction,
  accountId: string,
  entryIds: string[],
  now: Date,
): Promise<{ entries: number; items: number; guards: number }> {
  const ids = await listHolding(trx, 'entries', entryIds)
  if (ids.length === 0) return { entries: 0, items: 0, guards: 0 }
  const { time_zone: timeZone } = await trx('accounts').where({ id: accountId }).first('time_zone')
  const rows = await trx('entries').whereIn('id', ids).select('id', 'contact', 'email', 'created_at')
  let guards = 0
  for (const row of rows) {
    const made = { contact: row.contact, email: row.email, createdAt: row.created_at }
    // A guard is a hash that ten digits are soon tried out against. The day's place is free then: who comes again is new.
    if (dayGuardsOf(made as Parameters<typeof dayGuardsOf>[0], timeZone).length === 0) continue
    guards += await trx('entry_day_guards')
      .where({ account_id: accountId, entry_id: row.id })
      // The account's time zone may have been changed since.
      .where('day', '>=', dayOf(row.created_at.getTime() - DAY_MS))
      .where('day', '<=', dayOf(row.created_at.getTime() + DAY_MS))
      .delete()
  }
  await empty(trx, 'entries', ids, now)
  // Free texts: anything may stand in them. What is of the catalogue says nothing of anybody.
  const items: number = await trx('entry_items')
    .whereIn('entry_id', ids)
    .where({ unmapped: true })
    .update({ name: ERASED_NAME })
  return { entries: ids.length, items, guards }
}

const dayOf = (timeMs: number) => new Date(timeMs).toISOString().slice(0, 10)

/** @returns how many there was something in */
export async function erasePreBookings(trx: Knex.Transaction, preBookingIds: string[], now: Date): Promise<number> {
  const ids = await listHolding(trx, 'pre_bookings', preBookingIds)
  if (ids.length === 0) return 0
  await empty(trx, 'pre_bookings', ids, now)
  await trx('pre_booking_items')
    .whereIn('pre_booking_id', ids)
    .whereNull('item_id')
    .update({ name: ERASED_NAME, tests: null })
  return ids.length
}

/** @returns how many there was something in */
export async function eraseBills(trx: Knex.Transaction, billIds: string[], now: Date): Promise<number> {
  const ids = await listHolding(trx, 'bills', billIds)
  if (ids.length === 0) return 0
  await empty(trx, 'bills', ids, now)
  await trx('bill_items').whereIn('bill_id', ids).whereNull('item_id').update({ name: ERASED_NAME, tests: null })
  return ids.length
}

export interface ErasedReports {
  /** Of all these bills. */
  reportIds: string[]
  /** How many of them there was something in. */
  reports: number
  /** Their files, whose rows are gone. */
  fileIds: string[]
}

/** The reports of locked bills. */
export async function eraseReports(trx: Knex.Transaction, billIds: string[], now: Date): Promise<ErasedReports> {
  const reportIds: string[] =
    billIds.length === 0 ? [] : await trx('reports').whereIn('bill_id', billIds).orderBy('id').pluck('id')
  if (reportIds.length === 0) return { reportIds, reports: 0, fileIds: [] }
  const fileIds: string[] = await trx('report_files').whereIn('report_id', reportIds).pluck('id')
  const reports: number = await trx('reports')
    .whereIn('id', reportIds)
    .whereRaw('NOT (patient_id IS NULL AND file_id IS NULL AND JSON_LENGTH(tests) = 0)')
    .update({ patient_id: null, file_id: null, tests: '[]', version: trx.raw('version + 1'), updated_at: now })
  await trx('report_files').whereIn('report_id', reportIds).delete()
  return { reportIds, reports, fileIds }
}
