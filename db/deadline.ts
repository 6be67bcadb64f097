/**
 * Until when the caller of what runs now waits for the database. It travels with the work, through everything that is
 * awaited, so that a transaction deep down knows when its answer has become 503: from then on it must not commit any more.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import { monotonicMs } from '../src/clock.ts'
import { unavailable } from '../src/errors.ts'

/**
 * A COMMIT is sent so long before the deadline at least, in milliseconds: it ends in time then, unless the database stops
 * answering in the middle of it. That outcome alone stays in doubt.
 */
const COMMIT_RESERVE_MS = 500

const deadlines = new AsyncLocalStorage<number>()

/** Runs the work with this deadline, or with the one that it is under already where that is earlier. */
export function runBefore<T>(deadlineMs: number, work: (deadlineMs: number) => T): T {
  const earliest = Math.min(deadlineMs, deadlines.getStore() ?? Infinity)
  return deadlines.run(earliest, () => work(earliest))
}

/** Runs work that is nobody's alone. */
export function withoutDeadline<T>(work: () => T): T {
  return deadlines.exit(work)
}

/** What the work is under, for others that work for it too; Infinity: nothing. */
export function currentDeadlineMs(): number {
  return deadlines.getStore() ?? Infinity
}

/** The monotonic time after which nothing may be committed; Infinity where nobody waits, as in the daemon. */
export function lastCommitAtMs(): number {
  return currentDeadlineMs() - COMMIT_RESERVE_MS
}

/** @throws 503 when it is too late to commit */
export function requireTimeToCommit(): void {
  if (monotonicMs() > lastCommitAtMs()) throw tooLate()
}

export function tooLate() {
  return unavailable('the database does not answer in time; try again shortly')
}
