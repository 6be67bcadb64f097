/**
 * Pre-bookings as staff work with them.
 */
import type { Knex } from 'knex'
import { isIdShaped } from '../ids.ts'
import type { PreBooking, PreBookingItem } from './pre-booking-rules.ts'

/** Locks the pre-booking: of two that bill it at once, one does. */
export async function lockPreBooking(
  trx: Knex.Transaction,
  accountId: string,
  preBookingId: string,
): Promise<PreBooking | undefined> {
  if (!isIdShaped(preBookingId)) return undefined
  const locked = await trx('pre_bookings').where({ account_id: accountId, id: preBookingId }).forUpdate().first('id')
  return locked && findPreBooking(trx, accountId, preBookingId)
}

export async function findPreBooking(
  knex: Knex,
  accountId: string,
  preBookingId: string,
): Promise<PreBooking | undefined> {
  if (!isIdShaped(preBookingId)) return undefined
  return (await withItems(knex, await knex('pre_bookings').where({ account_id: accountId, id: preBookingId })))[0]
}

/** Raises the version too. Call under the pre-booking's lock. */
export async function updatePreBookingStatus(
  trx: Knex.Transaction,
  accountId: string,
  preBookingId: string,
  status: PreBooking['status'],
  now: Date,
): Promise<void> {
  await trx('pre_bookings')
    .where({ account_id: accountId, id: preBookingId })
    .update({ status, version: trx.raw('version + 1'), updated_at: now })
}

export interface PreBookingFilter {
  labId?: string | undefined
  status?: string | undefined
  after?: string | undefined
}

/** The oldest first. */
export async function listPreBookings(
  knex: Knex,
  accountId: string,
  { labId, status, after }: PreBookingFilter,
  limit: number,
): Promise<PreBooking[]> {
  const query = knex('pre_bookings').where({ account_id: accountId }).orderBy('id').limit(limit)
  if (labId !== undefined) query.where({ lab_id: labId })
  if (status !== undefined) query.where({ status })
  if (after !== undefined) query.where('id', '>', after)
  return withItems(knex, await query)
}

async function withItems(knex: Knex, rows: Record<string, any>[]): Promise<PreBooking[]> {
  if (rows.length === 0) return []
  const ids = rows.map((row) => row.id as string)
  const items = await knex('pre_booking_items').whereIn('pre_booking_id', ids).orderBy(['pre_booking_id', 'position'])
  const itemsOf = new Map<string, PreBookingItem[]>(ids.map((id) => [id, []]))
  for (const { pre_booking_id: id, kind, item_id: itemId, name, price, tests } of items) {
    // MariaDB answers JSON as text, MySQL as a value.
    const names = typeof tests === 'string' ? JSON.parse(tests) : tests
    itemsOf.get(id)!.push({ kind, itemId, name, price, tests: names })
  }
  return rows.map((row) => ({
    id: row.id,
    accountId: row.account_id,
    labId: row.lab_id,
    version: row.version,
    status: row.status,
    integratorId: row.integrator_id,
    firstName: row.first_name,
    lastName: row.last_name,
    gender: row.gender,
    age: row.age,
    ageType: row.age_type,
    leadSource: row.lead_source,
    rateListType: row.rate_list_type,
    doctorId: row.doctor_id,
    hospitalId: row.hospital_id,
    barcode: row.barcode,
    items: itemsOf.get(row.id)!,
    createdAt: row.created_at,
  }))
}
