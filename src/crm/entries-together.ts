/**
 * Leads and bookings that integrators push at the same time, of different accounts, are written by one transaction: under load its
 * round trips and its commit are what costs. What happens to one of them happens to no other.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import { COMMIT, type BatchPool } from '../../db/batch.ts'
import { isConnectionFault } from '../../db/connection.ts'
import { currentDeadlineMs, runBefore } from '../../db/deadline.ts'
import { togetherInTick } from '../same-tick.ts'
import { currentTraceParent } from '../trace-context.ts'
import { insertEntries, type NewEntry } from './entries-repository.ts'
import { createEntryIn, newEntryOf, type EntryWish } from './entry-creation.ts'
import { findReferencesOfAll } from './entry-references-repository.ts'
import type { Entry } from './entry-rules.ts'

/** Some wait for the database while others are put together; more would only make the groups smaller. */
const LIMITS = { groups: 3, size: 32 }

interface Call {
  wish: EntryWish
  traceParent: string | null
  deadlineMs: number
  /** Runs what is this request's alone under its own deadline. */
  inContext: <T>(work: () => T) => T
}

/** @returns a function that creates one entry, or throws as `createEntryIn` does */
export function createEntriesTogether(batch: BatchPool): (wish: EntryWish) => Promise<Entry> {
  const together = togetherInTick((calls: Call[]) => createGroup(batch, calls), {
    ...LIMITS,
    apart: ({ wish }) => wish.account.id,
  })
  return async (wish) => {
    const call = {
      ...{ wish, traceParent: currentTraceParent(), deadlineMs: currentDeadlineMs() },
      inContext: AsyncLocalStorage.snapshot() as Call['inContext'],
    }
    return (await together(call))()
  }
}

/** What becomes of each: the entry, or what it is refused with. */
async function createGroup(batch: BatchPool, calls: Call[]): Promise<(() => Entry | Promise<Entry>)[]> {
  const outcomes = new Map<Call, () => Entry>()
  if (calls.length > 1) {
    try {
      await runBefore(Math.min(...calls.map((call) => call.deadlineMs)), () => createAll(batch, calls, outcomes))
    } catch (error) {
      // Whether it is written is not known: asked again it would be its own duplicate.
      if (isConnectionFault(error)) throw error
      outcomes.clear()
    }
  }
  return calls.map((call) => outcomes.get(call) ?? (() => call.inContext(() => createAlone(batch, call.wish))))
}

/** Notes the outcome of those that it has decided. The order is that in which everybody locks what belongs to accounts. */
async function createAll(batch: BatchPool, calls: Call[], outcomes: Map<Call, () => Entry>): Promise<void> {
  const ordered = calls.toSorted((a, b) => (a.wish.account.id < b.wish.account.id ? -1 : 1))
  const asked = ordered.map(({ wish }) => ({ accountId: wish.account.id, body: wish.body }))
  await batch.transaction(async (send) => {
    const known = await findReferencesOfAll(send, asked)
    const made: NewEntry[] = []
    ordered.forEach((call, n) => {
      const references = known[n]
      if (!references) return
      try {
        const own = newEntryOf(call.wish, references, call.traceParent)
        made.push(own)
        outcomes.set(call, () => own.entry)
      } catch (error) {
        outcomes.set(call, () => {
          throw error
        })
      }
    })
    if (made.length > 0) await insertEntries(send, made, [COMMIT])
  })
}

function createAlone(batch: BatchPool, wish: EntryWish): Promise<Entry> {
  return batch.transaction((send) => createEntryIn(send, wish, () => [COMMIT]))
}
