/**
 * Leads and bookings that integrators push at the same time, of different accounts, are written by one transaction: its round
 * trips and its commit are what costs. Their accounts are looked up and their calls counted by it as well; a call counts whatever
 * becomes of its lead. What happens to one of them happens to no other.
 *
 * Two round trips, and where all of them are as foreseen (`foreseen-entries.ts`) one.
 */
import { COMMIT, type BatchPool, type BatchResult, type Send, type Statement } from '../../db/batch.ts'
import { isConnectionFault, withinBudget } from '../../db/connection.ts'
import { currentDeadlineMs, runBefore } from '../../db/deadline.ts'
import { toAccount, type Account } from '../accounts/accounts-repository.ts'
import { monotonicMs, type Clock } from '../clock.ts'
import { togetherInTick } from '../same-tick.ts'
import { currentTraceParent } from '../trace-context.ts'
import type { LateCaller } from './crm-admission.ts'
import { claimCrmCallsAlong, readBudgets } from './crm-budgets-repository.ts'
import { entryStatements, insertEntries, insertEntry, type NewEntry } from './entries-repository.ts'
import { createEntryIn, duplicateEntry, newEntryOf, type EntryWish } from './entry-creation.ts'
import { askReferences } from './entry-references-repository.ts'
import { requireSoundEntry, type Entry, type EntryRequest } from './entry-rules.ts'
import { EntryForesight, foreseenStatements, type Foreseen, type LookedUp } from './foreseen-entries.ts'

/** Some wait for the database while others are put together; more would only make the groups smaller. */
const LIMITS = { groups: 3, size: 32 }

/** Where the calls are counted, and nothing is written yet. */
const COUNTED: Statement = { sql: 'SAVEPOINT counted' }
const KEEP_COUNTED: Statement[] = [{ sql: 'ROLLBACK TO SAVEPOINT counted' }, COMMIT]
const ROLLBACK: Statement = { sql: 'ROLLBACK' }
/** What takes longer than that, in milliseconds, has waited for somebody. */
const WAITED_MS = 300

export interface EntryCall {
  caller: LateCaller
  body: EntryRequest
  /** Of the event that tells of the entry. */
  eventId: string
}

export interface EntriesTogetherDeps {
  batch: BatchPool
  clock: Clock
  /** Told of the event of one that is written by itself, while the end of its transaction is on its way to the database. */
  committing: (eventId: string) => void
}

interface Group extends EntriesTogetherDeps {
  foresight: EntryForesight
}

interface Call extends EntryCall {
  traceParent: string | null
  deadlineMs: number
}

/** What a group's first round trip has found. Each request takes its own up once, by itself: only that may answer it. */
interface Admitted {
  call: Call
  /** @throws 401 */
  admit: () => Account
  /** Of one that may go on, and whose turns nobody holds. */
  known: LookedUp | undefined
  /** There is no such account. */
  isUnknown: boolean
}

/** @returns a function that admits the caller and creates one entry, or throws as both do */
export function createEntriesTogether(deps: EntriesTogetherDeps): (call: EntryCall) => Promise<Entry> {
  const group = { ...deps, foresight: new EntryForesight() }
  const together = togetherInTick((calls: Call[]) => createGroup(group, calls), {
    ...LIMITS,
    apart: ({ caller }) => caller.id,
  })
  return async (asked) => {
    const outcome = await together({ ...asked, traceParent: currentTraceParent(), deadlineMs: currentDeadlineMs() })
    // Under this request's own deadline again: what is its alone is done here.
    return outcome()
  }
}

/** What becomes of each: the entry, or what it is refused with. */
async function createGroup(deps: Group, calls: Call[]): Promise<(() => Entry | Promise<Entry>)[]> {
  const admissions = new Map<Call, Admitted>()
  let outcomes = new Map<Call, () => Entry>()
  try {
    const earliestMs = Math.min(...calls.map((call) => call.deadlineMs))
    outcomes = await runBefore(earliestMs, () => createAll(deps, calls, admissions))
  } catch (error) {
    // Whether it is written is not known: asked again it would be its own duplicate.
    if (isConnectionFault(error)) throw error
  }
  return calls.map((call) => {
    const admitted = admissions.get(call)
    const outcome = outcomes.get(call)
    if (admitted?.isUnknown) return () => admitted.admit() as never
    if (admitted && outcome) return () => (admitted.admit(), outcome())
    return () => createAlone(deps, call, admitted)
  })
}

/**
 * The order is that in which everybody locks what belongs to accounts.
 * @param admissions gets those that were counted or are unknown, whatever becomes of the rest
 * @returns the outcomes of those that are decided
 */
async function createAll(deps: Group, calls: Call[], admissions: Map<Call, Admitted>): Promise<Map<Call, () => Entry>> {
  const outcomes = new Map<Call, () => Entry>()
  const refuse = (call: Call, error: unknown) =>
    outcomes.set(call, () => {
      throw error
    })
  const ordered = calls.toSorted((a, b) => (a.caller.id < b.caller.id ? -1 : 1))
  await deps.batch.transaction(async (send) => {
    const foreseen = deps.foresight.take(ordered.map(({ caller, body }) => ({ accountId: caller.id, body })))
    const written = foreseen && (await createForeseen(deps, send, ordered, foreseen))
    if (written) {
      for (const [call, { admitted, entry }] of written) {
        admissions.set(call, admitted)
        outcomes.set(call, () => entry)
      }
      return
    }
    const group = await admitAll(send, ordered, foreseen ? [ROLLBACK] : [])
    const made = new Map<Call, NewEntry>()
    for (const { call, known } of group) {
      if (!known) continue
      try {
        const own = newEntryOf(wishOf(deps, call, known.account), known.references, call.traceParent)
        made.set(call, own)
        outcomes.set(call, () => own.entry)
      } catch (error) {
        refuse(call, error)
      }
    }
    const counted = () => group.forEach((admitted) => admissions.set(admitted.call, admitted))
    try {
      // Who was told of an event in vain is not told of it again before it is there.
      const leadId = await insertMade(send, [...made.values()], foreseen ? () => {} : deps.committing)
      if (leadId !== undefined) for (const call of made.keys()) refuse(call, duplicateEntry(leadId))
      for (const { call, known } of group) {
        if (known) deps.foresight.learn(call.body, known, leadId === undefined ? made.get(call)?.turnOf : null)
      }
    } catch (error) {
      if (isConnectionFault(error)) throw error
      // Fails where the server has rolled everything back: then nothing was counted.
      await send(KEEP_COUNTED)
      counted()
      throw error
    }
    counted()
  })
  return outcomes
}

/**
 * And commits.
 * @returns the id of the entry that was there before, where one alone was to be made; undefined: all are written
 */
async function insertMade(
  send: Send,
  made: NewEntry[],
  committing: (eventId: string) => void,
): Promise<string | undefined> {
  const [first, ...others] = made
  if (!first) await send([COMMIT])
  else if (others.length > 0) await insertEntries(send, made, [COMMIT])
  else {
    const leadId = await insertEntry(send, first, [COMMIT], () => committing(first.event.id))
    if (leadId !== undefined) await send(KEEP_COUNTED)
    return leadId
  }
  return undefined
}

/**
 * One round trip, which also commits.
 * @returns undefined where anything was not as foreseen: then nothing is written, and the transaction has to be rolled back
 * @throws where somebody was in the way: then each is to be made by itself, as nobody is to wait for a second time
 */
async function createForeseen(
  deps: Group,
  send: Send,
  calls: Call[],
  foreseen: Foreseen[],
): Promise<Map<Call, { admitted: Admitted; entry: Entry }> | undefined> {
  const askedAtMs = monotonicMs()
  const made = newEntriesOf(deps, calls, foreseen)
  if (!made) return undefined
  const [waiting, ...others] = entryStatements(made)
  const labIds = calls.map(({ body }) => body.branchID)
  const { claim, compare } = foreseenStatements(foreseen, labIds)
  const sent = send([...claim, waiting, ...compare, ...others, COMMIT])
  if (made.length === 1) deps.committing(made[0]!.event.id)
  let results: BatchResult[]
  try {
    results = await sent
  } catch (error) {
    for (const known of foreseen) deps.foresight.doubt(known)
    if (isConnectionFault(error) || monotonicMs() - askedAtMs > WAITED_MS) throw error
    return undefined
  }
  const budgets = readBudgets(results[claim.length + compare.length]!)
  return new Map(
    calls.map((call, n) => {
      const known = foreseen[n]!
      deps.foresight.keep(known, made[n]!.turnOf)
      const admit = () => call.caller.admitted(known.account, budgets.get(known.account.id), askedAtMs)
      return [call, { admitted: { call, admit, known, isUnknown: false }, entry: made[n]!.entry }]
    }),
  )
}

/** @returns undefined where one of them is refused, which what is there now has to say */
function newEntriesOf(deps: Group, calls: Call[], foreseen: Foreseen[]): NewEntry[] | undefined {
  try {
    return calls.map((call, n) => {
      const { account, references } = foreseen[n]!
      return newEntryOf(wishOf(deps, call, account), references, call.traceParent)
    })
  } catch {
    for (const known of foreseen) deps.foresight.keep(known, null)
    return undefined
  }
}

/**
 * One round trip; what it counts is the caller's to commit. Of accounts whose calls it has not counted nothing is returned.
 * @param before what has to be sent first
 */
async function admitAll(send: Send, calls: Call[], before: Statement[]): Promise<Admitted[]> {
  const askedAtMs = monotonicMs()
  const ids = calls.map(({ caller }) => caller.id)
  const claims = claimCrmCallsAlong(ids, calls[0]!.caller.limit)
  const asked = calls.map(({ caller, body }) => ({ accountId: caller.id, body }))
  const { statements, read } = askReferences(asked, true)
  const results = (await send([...before, ...claims.statements, COUNTED, ...statements])).slice(before.length)
  const { references, accounts, states } = read(results.slice(claims.statements.length + 1))
  const budgets = claims.read(results, accounts)
  const rows = new Map(accounts.map((row) => [row.id, row]))
  return calls.flatMap((call, n) => {
    const { id } = call.caller
    const row = rows.get(id)
    const budget = budgets.get(id)
    if (row && !budget) return []
    const account = row && toAccount(row)
    const found = references[n]
    const known = account && found ? { account, references: found, state: states[n] } : undefined
    return { call, admit: () => call.caller.admitted(account, budget, askedAtMs), known, isUnknown: !account }
  })
}

async function createAlone(deps: EntriesTogetherDeps, call: Call, admitted: Admitted | undefined): Promise<Entry> {
  const account = admitted ? admitted.admit() : await call.caller.admit()
  const wish = { ...wishOf(deps, call, account), onSent: () => deps.committing(call.eventId) }
  return withinBudget(() => deps.batch.transaction((send) => createEntryIn(send, wish, () => [COMMIT])))
}

function wishOf({ clock }: EntriesTogetherDeps, { body, eventId }: Call, account: Account): EntryWish {
  return { account, body, eventId, scheduledAt: requireSoundEntry(body, account), now: clock.now() }
}
