/**
 * Rows of entries, their items and the day's guards. Written in few round trips: this is the call that integrators make
 * most.
 */
import type { Send, Statement } from '../../db/batch.ts'
import { isDuplicate } from '../../db/connection.ts'
import type { RecordedEvent } from '../events/event-types.ts'
import { recordEventStatements } from '../events/events-repository.ts'
import type { DayGuard, Entry } from './entry-rules.ts'
import { insertNotificationsStatement, type StaffNotification } from './notifications-repository.ts'
import { updateTurnsStatement } from './telecallers-repository.ts'

/** An entry with what is written with it, or not at all. */
export interface NewEntry {
  entry: Entry
  guards: DayGuard[]
  event: RecordedEvent
  /** Of the request that the event comes from. */
  traceParent: string | null
  notification: StaffNotification
  /** The telecaller whose turn it was, where the entry was assigned automatically. */
  turnOf: string | null
}

/**
 * Writes an entry with its company, in one round trip. The guards come early: their primary key decides which of
 * several requests at once is the day's first, and who loses has written nothing else but that its event waits.
 * @param end what else belongs to the request; `COMMIT` at its end where the caller's transaction leaves that to it
 * @param onSent told when all of it is on its way. It must not throw
 * @returns the id of the entry that was there before, whose caller rolls back; undefined: this one is written
 */
export async function insertEntry(
  send: Send,
  made: NewEntry,
  end: Statement[],
  onSent?: () => void,
): Promise<string | undefined> {
  try {
    await insertEntries(send, [made], end, onSent)
    return undefined
  } catch (error) {
    if (!isDuplicate(error) || made.guards.length === 0) throw error
    return findGuardedEntry(send, made.entry.accountId, made.guards)
  }
}

/**
 * The same for entries of several accounts.
 * @param made in the order of their accounts, as everybody locks their guards
 * @param onSent told when all of it is on its way
 * @throws when one of them is the second of its day: then none is written
 */
export async function insertEntries(
  send: Send,
  made: NewEntry[],
  end: Statement[],
  onSent?: () => void,
): Promise<void> {
  const sent = send([...entryStatements(made), ...end])
  onSent?.()
  await sent
}

/** By the first of them their events wait for the fan-out. @param made as in `insertEntries` */
export function entryStatements(made: NewEntry[]): [Statement, ...Statement[]] {
  const events = made.map(({ event }) => event)
  const traceParents = made.map(({ traceParent }) => traceParent)
  const [waiting, ...recorded] = recordEventStatements(events, traceParents)
  return [
    waiting,
    ...guardStatements(made),
    ...recorded,
    entriesStatement(made.map(({ entry }) => entry)),
    ...itemStatements(made.map(({ entry }) => entry)),
    insertNotificationsStatement(made.map(({ notification }) => notification)),
    ...turnStatements(made),
  ]
}

/**
 * The refused insert holds the other's guard row locked, so that it can't be gone by now. Read as it is, locked: a plain read may
 * come a moment before MariaDB shows what was committed.
 */
async function findGuardedEntry(send: Send, accountId: string, guards: DayGuard[]): Promise<string> {
  const matches = guards.map(() => '(day = ? AND kind = ? AND value_hash = ?)').join(' OR ')
  const [rows] = await send([
    {
      sql: `SELECT entry_id FROM entry_day_guards FORCE INDEX (PRIMARY)
            WHERE account_id = ? AND (${matches}) ORDER BY kind LIMIT 1 LOCK IN SHARE MODE`,
      values: [accountId, ...guards.flatMap(({ day, kind, valueHash }) => [day, kind, valueHash])],
    },
  ])
  return rows![0]!.entry_id
}

function guardStatements(made: NewEntry[]): Statement[] {
  const rows = made.flatMap(({ entry, guards }) =>
    guards.map(({ day, kind, valueHash }) => [entry.accountId, day, kind, valueHash, entry.id]),
  )
  if (rows.length === 0) return []
  return [
    { sql: 'INSERT INTO entry_day_guards (account_id, day, kind, value_hash, entry_id) VALUES ?', values: [rows] },
  ]
}

function turnStatements(made: NewEntry[]): Statement[] {
  const turns = made.flatMap(({ entry, turnOf }) =>
    turnOf === null ? [] : [{ accountId: entry.accountId, telecallerId: turnOf }],
  )
  return turns.length === 0 ? [] : [updateTurnsStatement(turns)]
}

const COLUMNS =
  'id, account_id, lab_id, version, phase, integrator_id, first_name, last_name, contact, email, corporate_id, doctor_id, ' +
  'hospital_id, booking_type, scheduled_at, booking_status, payment_status, payment_method, converted_at, assigned_to, ' +
  'discount_amount, total_amount, details, created_at, updated_at'

function entriesStatement(entries: Entry[]): Statement {
  const rows = entries.map((entry) => [
    entry.id,
    entry.accountId,
    entry.labId,
    entry.version,
    entry.phase,
    entry.integratorId,
    entry.firstName,
    entry.lastName,
    entry.contact,
    entry.email,
    entry.corporateId,
    entry.doctorId,
    entry.hospitalId,
    entry.bookingType,
    entry.scheduledAt,
    entry.bookingStatus,
    entry.paymentStatus,
    entry.paymentMethod,
    entry.convertedAt,
    entry.assignedTo,
    entry.discountAmount,
    entry.totalAmount,
    JSON.stringify(entry.details),
    entry.createdAt,
    entry.createdAt,
  ])
  return { sql: `INSERT INTO entries (${COLUMNS}) VALUES ?`, values: [rows] }
}

function itemStatements(entries: Entry[]): Statement[] {
  const rows = entries.flatMap(({ id, items }) =>
    items.map(({ kind, itemId, name, price }, position) => [id, position, kind, itemId, name, price]),
  )
  if (rows.length === 0) return []
  return [{ sql: 'INSERT INTO entry_items (entry_id, position, kind, item_id, name, price) VALUES ?', values: [rows] }]
}
