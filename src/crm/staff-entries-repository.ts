/**
 * Entries as staff work with them: one at a time under its row's lock, and lists.
 */
import type { Knex } from 'knex'
import { isIdShaped } from '../ids.ts'
import type { Entry, EntryItem } from './entry-rules.ts'
import type { DayRange } from './zoned-time.ts'

/** Locks the entry: of two actions at once the second sees what the first has made of it. */
export async function lockEntry(trx: Knex.Transaction, accountId: string, leadId: string): Promise<Entry | undefined> {
  if (!isIdShaped(leadId)) return undefined
  // The lock first, by itself: what is read after it is what the transaction before has committed.
  const locked = await trx('entries').where({ account_id: accountId, id: leadId }).forUpdate().first('id')
  return locked && findEntry(trx, accountId, leadId)
}

export async function findEntry(knex: Knex, accountId: string, leadId: string): Promise<Entry | undefined> {
  if (!isIdShaped(leadId)) return undefined
  const rows = await entriesWithPhlebotomist(knex).where({ 'e.account_id': accountId, 'e.id': leadId })
  return (await withItems(knex, rows))[0]
}

/** Everything that an action of staff changes of an entry. Call under its lock. */
export async function updateEntry(trx: Knex.Transaction, entry: Entry, now: Date): Promise<void> {
  await trx('entries')
    .where({ account_id: entry.accountId, id: entry.id })
    .update({
      version: entry.version,
      phase: entry.phase,
      booking_type: entry.bookingType,
      scheduled_at: entry.scheduledAt,
      booking_status: entry.bookingStatus,
      payment_status: entry.paymentStatus,
      payment_method: entry.paymentMethod,
      converted_at: entry.convertedAt,
      phlebotomist_id: entry.phlebotomist?.id ?? null,
      updated_at: now,
    })
}

/** Sets what an item stands for in the catalogue. Call under the entry's lock. */
export async function updateEntryItem(
  trx: Knex.Transaction,
  entryId: string,
  position: number,
  item: EntryItem,
): Promise<void> {
  await trx('entry_items')
    .where({ entry_id: entryId, position })
    .update({ kind: item.kind, item_id: item.itemId, name: item.name, price: item.price })
}

/** The names of those ids that the lab offers. */
export async function listCatalogueNames(
  knex: Knex,
  accountId: string,
  labId: string,
  table: 'tests' | 'packages',
  ids: string[],
): Promise<Map<string, string>> {
  if (ids.length === 0) return new Map()
  const scope = { account_id: accountId, lab_id: labId, active: true, removed_at: null }
  const rows = await knex(table).where(scope).whereIn('id', ids).select('id', 'name')
  return new Map(rows.map(({ id, name }) => [id, name]))
}

export interface BookingFilter {
  phlebotomistId?: string | undefined
  labId?: string | undefined
  status?: string | undefined
  scheduled?: DayRange | undefined
  after?: { scheduledAt: Date; id: string } | undefined
}

/** Bookings in the order of their schedule. */
export async function listBookings(
  knex: Knex,
  accountId: string,
  { phlebotomistId, labId, status, scheduled, after }: BookingFilter,
  limit: number,
): Promise<Entry[]> {
  const query = entriesWithPhlebotomist(knex)
    .where({ 'e.account_id': accountId, 'e.phase': 'booking' })
    .orderBy(['e.scheduled_at', 'e.id'])
    .limit(limit)
  if (phlebotomistId !== undefined) query.where('e.phlebotomist_id', phlebotomistId)
  if (labId !== undefined) query.where('e.lab_id', labId)
  if (status !== undefined) query.where('e.booking_status', status)
  if (scheduled) query.where('e.scheduled_at', '>=', scheduled.from)
  if (scheduled?.to) query.where('e.scheduled_at', '<', scheduled.to)
  if (after) {
    query.where((further) =>
      further
        .where('e.scheduled_at', '>', after.scheduledAt)
        .orWhere((tied) => tied.where('e.scheduled_at', after.scheduledAt).where('e.id', '>', after.id)),
    )
  }
  return withItems(knex, await query)
}

export interface EntryFilter {
  labId?: string | undefined
  phase?: string | undefined
  /** Only those with items that staff have yet to resolve. */
  unmapped?: boolean | undefined
  after?: string | undefined
}

/** Leads and bookings, the oldest first. */
export async function listEntries(
  knex: Knex,
  accountId: string,
  { labId, phase, unmapped, after }: EntryFilter,
  limit: number,
): Promise<Entry[]> {
  const query = entriesWithPhlebotomist(knex).where('e.account_id', accountId).orderBy('e.id').limit(limit)
  if (labId !== undefined) query.where('e.lab_id', labId)
  if (phase !== undefined) query.where('e.phase', phase)
  if (after !== undefined) query.where('e.id', '>', after)
  if (unmapped) {
    // Not what nobody can resolve any more.
    query
      .whereExists((items) =>
        items
          .select(knex.raw('1'))
          .from('entry_items as i')
          .whereRaw('i.entry_id = e.id')
          .where({ 'i.unmapped': true }),
      )
      .whereRaw(`COALESCE(e.booking_status, '') <> 'Cancelled'`)
      .whereRaw('NOT EXISTS (SELECT 1 FROM erased_records x WHERE x.record_id = e.id)')
  }
  return withItems(knex, await query)
}

function entriesWithPhlebotomist(knex: Knex) {
  return knex('entries as e')
    .leftJoin('phlebotomists as p', 'p.id', 'e.phlebotomist_id')
    .select('e.*', { phlebotomist_name: 'p.name' })
}

async function withItems(knex: Knex, rows: Record<string, unknown>[]): Promise<Entry[]> {
  if (rows.length === 0) return []
  const ids = rows.map((row) => row.id as string)
  const items = await knex('entry_items').whereIn('entry_id', ids).orderBy(['entry_id', 'position'])
  const itemsOf = new Map<string, EntryItem[]>(ids.map((id) => [id, []]))
  for (const { entry_id: entryId, kind, item_id: itemId, name, price } of items) {
    itemsOf.get(entryId)!.push({ kind, itemId, name, price })
  }
  return rows.map((row) => toEntry(row, itemsOf.get(row.id as string)!))
}

function toEntry(row: Record<string, any>, items: EntryItem[]): Entry {
  return {
    id: row.id,
    accountId: row.account_id,
    labId: row.lab_id,
    version: row.version,
    phase: row.phase,
    integratorId: row.integrator_id,
    firstName: row.first_name,
    lastName: row.last_name,
    contact: row.contact,
    email: row.email,
    corporateId: row.corporate_id,
    doctorId: row.doctor_id,
    hospitalId: row.hospital_id,
    bookingType: row.booking_type,
    scheduledAt: row.scheduled_at,
    bookingStatus: row.booking_status,
    paymentStatus: row.payment_status,
    paymentMethod: row.payment_method,
    convertedAt: row.converted_at,
    assignedTo: row.assigned_to,
    phlebotomist: row.phlebotomist_id === null ? null : { id: row.phlebotomist_id, name: row.phlebotomist_name },
    discountAmount: row.discount_amount,
    totalAmount: row.total_amount,
    details: JSON.parse(row.details),
    items,
    createdAt: row.created_at,
  }
}
