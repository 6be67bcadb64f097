/**
 * Rows of entries, their items and the day's guards. Written in few round trips: this is the call that integrators make
 * most.
 */
import type { BatchResult, Send, Statement } from '../../db/batch.ts'
import { isDuplicate } from '../../db/connection.ts'
import { recordEventStatements } from '../events/events-repository.ts'
import type { RecordedEvent } from '../events/event-types.ts'
import { isIdShaped } from '../ids.ts'
import { toCrmSettings } from './crm-settings-repository.ts'
import {
  isAssignedAutomatically,
  type DayGuard,
  type Entry,
  type EntryReferences,
  type EntryRequest,
} from './entry-rules.ts'
import { insertNotificationStatement, type StaffNotification } from './notifications-repository.ts'
import { listCandidatesStatement, lockTurnsStatement, updateTurnStatement } from './telecallers-repository.ts'

/**
 * Looks up every id of the request, in one round trip. For an entry that is assigned automatically the account's turns are
 * locked from here to the end of the transaction: two such entries are assigned one after the other, in the order of their
 * commits, and one that is refused or lost has moved nothing. Nothing else is locked yet, so that nobody waits in a circle.
 */
export async function findEntryReferences(send: Send, accountId: string, body: EntryRequest): Promise<EntryReferences> {
  const labId = body.branchID
  const partyIds = [body.corporateUser, body.referredOrganization, body.referredHospitalOrganization]
  const testIds = (body.tests ?? []).map(({ test }) => test)
  const packageIds = (body.packages ?? []).map((item) => item.package)
  const ofLab = (table: string, ids: string[]) =>
    lookUp(
      `SELECT id, name FROM ${table} WHERE account_id = ? AND lab_id = ? AND active AND id IN (?)`,
      [accountId, labId],
      ids,
    )
  const isAutomatic = isAssignedAutomatically(body)
  const found = await sendThose(send, {
    // With the account's settings: without the lab nobody asks for them.
    lab: lookUp(
      `SELECT l.active, s.* FROM labs l LEFT JOIN crm_settings s ON s.account_id = l.account_id
       WHERE l.account_id = ? AND l.id IN (?)`,
      [accountId],
      [labId],
    ),
    parties: lookUp('SELECT id, kind FROM parties WHERE account_id = ? AND id IN (?)', [accountId], partyIds),
    tests: ofLab('tests', testIds),
    packages: ofLab('packages', packageIds),
    assignee: lookUp(
      'SELECT id FROM telecallers WHERE account_id = ? AND active AND id IN (?)',
      [accountId],
      [body.assignedTo],
    ),
    turns: isAutomatic ? lockTurnsStatement(accountId) : undefined,
    candidates: isAutomatic ? listCandidatesStatement(accountId) : undefined,
  })
  return {
    labIsActive: Boolean(found.lab[0]?.active),
    partyKinds: new Map(found.parties.map((row) => [row.id, row.kind])),
    testNames: new Map(found.tests.map((row) => [row.id, row.name])),
    packageNames: new Map(found.packages.map((row) => [row.id, row.name])),
    settings: toCrmSettings(found.lab[0]?.account_id ? found.lab[0] : undefined),
    assigneeIsActive: found.assignee.length > 0,
    lastTelecallerId: found.turns[0]?.last_telecaller_id ?? null,
    candidates: found.candidates.map((row) => ({ id: row.id, openLeads: Number(row.open_leads) })),
  }
}

/** Only what can be an id reaches the server; nothing to ask is not asked. */
function lookUp(sql: string, scope: string[], ids: (string | undefined)[]): Statement | undefined {
  const known = [...new Set(ids.filter((id) => id !== undefined && isIdShaped(id)))]
  return known.length === 0 || !scope.every(isIdShaped) ? undefined : { sql, values: [...scope, known] }
}

async function sendThose<Name extends string>(
  send: Send,
  statements: Record<Name, Statement | undefined>,
): Promise<Record<Name, BatchResult>> {
  const asked = Object.entries<Statement | undefined>(statements).filter(([, statement]) => statement !== undefined)
  const results = asked.length === 0 ? [] : await send(asked.map(([, statement]) => statement!))
  const found = Object.fromEntries(Object.keys(statements).map((name) => [name, [] as unknown]))
  asked.forEach(([name], index) => (found[name] = results[index]))
  return found as Record<Name, BatchResult>
}

/** What is written with an entry, or not at all. */
export interface EntryCompany {
  guards: DayGuard[]
  event: RecordedEvent
  notification: StaffNotification
  /** The telecaller whose turn it was, where the entry was assigned automatically. */
  turnOf: string | null
  /** What else belongs to the request; `COMMIT` at its end where the caller's transaction leaves that to it. */
  end: Statement[]
}

/**
 * Writes the entry with its company, in one round trip. The guards come first: their primary key decides which of
 * several requests at once is the day's first, and who loses has written nothing else.
 * @returns the id of the entry that was there before; undefined: this one is written
 */
export async function insertEntry(
  send: Send,
  entry: Entry,
  { guards, event, notification, turnOf, end }: EntryCompany,
): Promise<string | undefined> {
  try {
    await send([
      ...guardStatements(entry, guards),
      entryStatement(entry),
      ...itemStatements(entry),
      ...recordEventStatements(event),
      insertNotificationStatement(notification),
      ...(turnOf === null ? [] : [updateTurnStatement(entry.accountId, turnOf)]),
      ...end,
    ])
    return undefined
  } catch (error) {
    if (!isDuplicate(error) || guards.length === 0) throw error
    return findGuardedEntry(send, entry.accountId, guards)
  }
}

/** The refused insert holds the other's guard row locked, so that it can't be gone by now. */
async function findGuardedEntry(send: Send, accountId: string, guards: DayGuard[]): Promise<string> {
  const matches = guards.map(() => '(day = ? AND kind = ? AND value_hash = ?)').join(' OR ')
  const [rows] = await send([
    {
      sql: `SELECT entry_id FROM entry_day_guards WHERE account_id = ? AND (${matches}) ORDER BY kind LIMIT 1`,
      values: [accountId, ...guards.flatMap(({ day, kind, valueHash }) => [day, kind, valueHash])],
    },
  ])
  return rows![0]!.entry_id
}

function guardStatements(entry: Entry, guards: DayGuard[]): Statement[] {
  if (guards.length === 0) return []
  const rows = guards.map(({ day, kind, valueHash }) => [entry.accountId, day, kind, valueHash, entry.id])
  return [
    { sql: 'INSERT INTO entry_day_guards (account_id, day, kind, value_hash, entry_id) VALUES ?', values: [rows] },
  ]
}

function entryStatement(entry: Entry): Statement {
  const columns: Record<string, unknown> = {
    id: entry.id,
    account_id: entry.accountId,
    lab_id: entry.labId,
    version: entry.version,
    phase: entry.phase,
    integrator_id: entry.integratorId,
    first_name: entry.firstName,
    last_name: entry.lastName,
    contact: entry.contact,
    email: entry.email,
    corporate_id: entry.corporateId,
    doctor_id: entry.doctorId,
    hospital_id: entry.hospitalId,
    booking_type: entry.bookingType,
    scheduled_at: entry.scheduledAt,
    booking_status: entry.bookingStatus,
    payment_status: entry.paymentStatus,
    payment_method: entry.paymentMethod,
    converted_at: entry.convertedAt,
    assigned_to: entry.assignedTo,
    discount_amount: entry.discountAmount,
    total_amount: entry.totalAmount,
    details: JSON.stringify(entry.details),
    created_at: entry.createdAt,
    updated_at: entry.createdAt,
  }
  const names = Object.keys(columns)
  return {
    sql: `INSERT INTO entries (${names.join(', ')}) VALUES (${names.map(() => '?').join(', ')})`,
    values: Object.values(columns),
  }
}

function itemStatements({ id, items }: Entry): Statement[] {
  if (items.length === 0) return []
  const rows = items.map(({ kind, itemId, name, price }, position) => [id, position, kind, itemId, name, price])
  return [{ sql: 'INSERT INTO entry_items (entry_id, position, kind, item_id, name, price) VALUES ?', values: [rows] }]
}
