/**
 * Erasing a patient: an order, and the steps that carry it out. Each step is one transaction that also writes down how far it
 * has come, under the lock of the order's row: killed at any point, whoever goes on finds a step done or not. Any number of
 * processes may try at once.
 *
 * First the records, under the locks under which events are made of them; then the events, all of which are there by then.
 */
import type { Knex } from 'knex'
import type { Database } from '../../db/connection.ts'
import type { Clock } from '../clock.ts'
import type { Keys } from '../crypto.ts'
import type { ReportStore } from '../reports/report-store.ts'
import {
  discardCopies,
  eraseEvents,
  listEventsOfSubject,
  listLabIds,
  listUnsettled,
  settleEvents,
} from './erased-events-repository.ts'
import { addPeople, recipientTest } from './erased-people.ts'
import { listGone, listPeopleOf, listShared } from './erased-people-repository.ts'
import { PHASES, type Erasure, type ErasureCounts, type Person } from './erasure-rules.ts'
import {
  claimErasure,
  insertErasedRecords,
  recordErasureEnd,
  recordGivenUp,
  recordStep,
} from './erasures-repository.ts'
import { eraseLogin, eraseTextMessages } from './logins-repository.ts'
import { eraseBills, eraseEntries, erasePreBookings, eraseReports } from './emptied-records-repository.ts'
import {
  deletePatients,
  deleteReportsOfPatients,
  listBillsOfPatients,
  listEntriesOfContact,
  listEntriesOfEmail,
  listBillsOfContact,
  listLeftOver,
  lockPatientsOf,
  lockTogether,
  type Patient,
  type RecordIds,
} from './patient-records-repository.ts'

export interface ErasureDeps {
  database: Database
  clock: Clock
  keys: Keys
  reportStore: ReportStore
  /** Said by whoever runs it: what was encrypted under another key nobody can open any more. */
  secretsKeyLost?: boolean
}

/** Records that one step changes, with what was made of them. */
const RECORDS_AT_A_TIME = 50
/** Rows that one step reads where there is no index for what it looks for. */
const WINDOW_ROWS = 2000
const COPIES_AT_A_TIME = 500
const PEOPLE_AT_A_TIME = 50

/** `waiting`: for daemons, which have copies under way. */
export type StepOutcome = 'more' | 'waiting' | 'ended'

/** One step. @throws 503 where the database does not take it in time: it is not done then */
export async function stepErasure(deps: ErasureDeps, erasureId: string): Promise<StepOutcome> {
  return deps.database.transaction(async (trx) => {
    const erasure = await claimErasure(trx, deps.keys, erasureId)
    if (!erasure) return 'ended'
    const now = deps.clock.now()
    if (erasure.phase === 'copies') return settle(trx, deps, erasure, now)
    if (erasure.subject === null && !erasure.isGivenUp) {
      // Not for ever, as far as anybody knows: the right key may be set by the next start.
      if (!deps.secretsKeyLost) throw new Error('an erasure was ordered under another SECRETS_KEY')
      await recordGivenUp(trx, erasure.id, now)
      return 'more'
    }
    const isDone = await STEPS[erasure.phase](trx, { erasure, deps, now })
    if (isDone) {
      erasure.phase = PHASES[PHASES.indexOf(erasure.phase) + 1]!
      erasure.labId = null
      erasure.position = null
    }
    await recordStep(trx, deps.keys, erasure, now)
    return 'more'
  })
}

interface StepContext {
  /** Changed by the step, and written by its caller. */
  erasure: Erasure
  deps: ErasureDeps
  now: Date
}

/** @returns whether its phase is done */
type Step = (trx: Knex.Transaction, context: StepContext) => Promise<boolean>

const STEPS: Record<Exclude<Erasure['phase'], 'copies'>, Step> = {
  async entries(trx, context) {
    const { accountId, subject, position } = context.erasure
    if (subject!.contact === null) return true
    const page = await listEntriesOfContact(trx, accountId, subject!, position ?? '', RECORDS_AT_A_TIME)
    await eraseRecords(trx, context, { entries: page.ids, preBookings: [], bills: [] })
    context.erasure.position = page.last ?? null
    return page.last === undefined
  },

  async emails(trx, context) {
    const { accountId, subject, position } = context.erasure
    if (subject!.email === null) return true
    const page = await listEntriesOfEmail(trx, accountId, subject!, position ?? '', WINDOW_ROWS)
    await eraseRecords(trx, context, { entries: page.ids, preBookings: [], bills: [] })
    context.erasure.position = page.last ?? null
    return page.last === undefined
  },

  /** Those that were named; at most 100 of a kind, as the contract has it. */
  async records(trx, context) {
    const { leadIds, preBookingIds, billIds } = context.erasure.subject!
    await eraseRecords(trx, context, { entries: leadIds, preBookings: preBookingIds, bills: billIds })
    return true
  },

  /** Those of a patient whose contact is another one by now. */
  async bills(trx, context) {
    const { accountId, subject, position } = context.erasure
    if (subject!.contact === null) return true
    const page = await listBillsOfContact(trx, accountId, subject!, position ?? '', WINDOW_ROWS)
    await eraseRecords(trx, context, { entries: [], preBookings: [], bills: page.ids })
    context.erasure.position = page.last ?? null
    return page.last === undefined
  },

  async patients(trx, context) {
    const { erasure, deps } = context
    const patients = await lockPatientsOf(trx, erasure.accountId, erasure.subject!, RECORDS_AT_A_TIME)
    if (patients.length === 0) return true
    const patientIds = patients.map(({ id }) => id)
    const bills = await listBillsOfPatients(trx, erasure.accountId, patientIds, RECORDS_AT_A_TIME)
    if (bills.length > 0) {
      await eraseRecords(trx, context, { entries: [], preBookings: [], bills })
      return false
    }
    const reportIds = await deleteReportsOfPatients(trx, patientIds, RECORDS_AT_A_TIME)
    if (reportIds.length > 0) {
      await removeFiles(deps, reportIds)
      count(erasure, { reports: reportIds.length, reportFiles: reportIds.length })
      return false
    }
    await erasePatients(trx, erasure, patients)
    return patients.length < RECORDS_AT_A_TIME
  },

  async login(trx, { erasure, deps, now }) {
    const { accountId, subject, position } = erasure
    const { people, contact: named } = subject!
    const start = Number(position ?? 0)
    const some = people.slice(start, start + PEOPLE_AT_A_TIME)
    const ofNamed = named === null || start > 0 ? [] : [named]
    const shared = await listShared(trx, accountId, [...ofNamed, ...some.map(({ contact }) => contact)])
    const gone = await listGone(trx, accountId, some, shared)
    const ended = some.filter((person) => person.wasPatient || gone.includes(person))
    const contacts = new Set([...ofNamed, ...ended.map(({ contact }) => contact)])
    for (const { contact } of people.slice(0, start)) contacts.delete(contact)
    if (start > 0) contacts.delete(named ?? '')
    for (const contact of contacts) {
      const owner = { accountId, contact, isShared: shared.has(contact) }
      count(erasure, await eraseLogin(trx, deps.keys, owner, now))
    }
    const alone = new Set([...contacts].filter((contact) => !shared.has(contact)))
    count(erasure, { textMessages: await eraseTextMessages(trx, deps.keys, accountId, alone) })
    people.splice(start, some.length, ...gone)
    erasure.position = String(start + gone.length)
    return start + gone.length >= people.length
  },

  async events(trx, { erasure, now }) {
    const { id, accountId, subject } = erasure
    const labIds = await listLabIds(trx, accountId)
    const labId = erasure.labId ?? labIds[0]
    if (labId === undefined) return true
    const window = { labId, after: erasure.position ?? '', limit: WINDOW_ROWS }
    const isRecipient = subject ? recipientTest(subject) : () => false
    const { ids, last } = await listEventsOfSubject(trx, id, isRecipient, window)
    const { events, messages, answers } = await eraseEvents(trx, id, ids, now)
    count(erasure, { events, messages, storedAnswers: answers })
    erasure.labId = last === undefined ? (labIds.find((other) => other > labId) ?? null) : labId
    erasure.position = last ?? null
    return erasure.labId === null
  },
}

/** What waits is discarded; with the last copy goes the last trace. */
async function settle(trx: Knex.Transaction, { keys }: ErasureDeps, erasure: Erasure, now: Date): Promise<StepOutcome> {
  const eventIds = await listUnsettled(trx, erasure.id, COPIES_AT_A_TIME)
  if (eventIds.length === 0) {
    await recordErasureEnd(trx, erasure.id, erasure.isGivenUp ? 'failed' : 'completed', now)
    return 'ended'
  }
  const discardedCopies = await discardCopies(trx, eventIds, now)
  const { settled, answers } = await settleEvents(trx, eventIds, now)
  count(erasure, { discardedCopies, storedAnswers: answers })
  await recordStep(trx, keys, erasure, now)
  return settled > 0 || discardedCopies > 0 ? 'more' : 'waiting'
}

/** Takes the person out of these records and of all that was made of them. */
async function eraseRecords(
  trx: Knex.Transaction,
  { erasure, deps, now }: StepContext,
  seeds: RecordIds,
): Promise<void> {
  const { id, accountId } = erasure
  const { entries, preBookings, bills, patients } = await lockTogether(trx, accountId, seeds)
  addPeople(erasure.subject!, await listPeopleOf(trx, entries, bills))
  const { entries: erasedEntries, items, guards } = await eraseEntries(trx, accountId, entries, now)
  const erasedPreBookings = await erasePreBookings(trx, preBookings, now)
  const erasedBills = await eraseBills(trx, bills, now)
  const { reportIds, reports, fileIds } = await eraseReports(trx, bills, now)
  await insertErasedRecords(trx, id, 'entry', entries)
  await insertErasedRecords(trx, id, 'pre_booking', preBookings)
  await insertErasedRecords(trx, id, 'bill', bills)
  await insertErasedRecords(trx, id, 'report', reportIds)
  await removeFiles(deps, fileIds)
  await erasePatients(trx, erasure, await listLeftOver(trx, patients), { isOfRecord: true, wasPatient: true })
  count(erasure, {
    entries: erasedEntries,
    entryItems: items,
    dayGuards: guards,
    preBookings: erasedPreBookings,
    bills: erasedBills,
    reports,
    reportFiles: fileIds.length,
  })
}

/**
 * Their logins and the messages to them come later: the contact may be one that nobody has named.
 * @param found how they are known, where they were not named
 */
async function erasePatients(
  trx: Knex.Transaction,
  erasure: Erasure,
  patients: Patient[],
  found: Pick<Person, 'isOfRecord' | 'wasPatient'> = {},
): Promise<void> {
  const ids = patients.map(({ id }) => id)
  await insertErasedRecords(trx, erasure.id, 'patient', ids)
  await deletePatients(trx, ids)
  addPeople(
    erasure.subject!,
    patients.map(({ contact, name }) => ({ contact, name, ...found })),
  )
  count(erasure, { patients: ids.length })
}

/** Before their rows are gone for certain: a crash in between leaves rows whose file is missing, and the next try finds them. */
async function removeFiles({ reportStore }: ErasureDeps, fileIds: string[]): Promise<void> {
  for (const fileId of fileIds) await reportStore.remove(fileId)
}

function count(erasure: Erasure, more: Partial<ErasureCounts>): void {
  for (const [name, number] of Object.entries(more) as [keyof ErasureCounts, number][]) erasure.counts[name] += number
}
