import type { Database } from '../../db/connection.ts'
import { monotonicMs, type Clock } from '../../src/clock.ts'
import { moveBackWithClock, noteClock } from '../../src/deliveries/clock-set-back-repository.ts'
import type { Logger } from '../../src/logger.ts'

export interface FollowClockDeps {
  database: Database
  clock: Clock
  log: Logger
}

/** Longer than from one look to the next, and than what a process takes to see that the clock has moved. */
const MARGIN_MS = 6000

/**
 * Notes the database's time. Where it was set back, what waits for a time is moved back with it: at the second look that
 * finds it so, when every process goes by the clock as it is now and nobody writes a time of the clock as it was.
 */
export function followClock({ database, clock, log }: FollowClockDeps): () => Promise<void> {
  const startedAtMs = monotonicMs()
  /** When the clock was last as it must be. */
  let right: { timeMs: number; atMs: number } | undefined
  let isSuspected = false
  return async () => {
    const atMs = monotonicMs()
    const timeMs = clock.nowMs()
    if (await noteClock(database.knex)) {
      right = { timeMs, atMs }
      isSuspected = false
      return
    }
    if (!isSuspected) {
      isSuspected = true
      return
    }
    const expectedMs = right && right.timeMs + (monotonicMs() - right.atMs)
    const newForMs = monotonicMs() - (right?.atMs ?? startedAtMs) + MARGIN_MS
    const moved = await moveBackWithClock(database.batch, expectedMs, newForMs)
    isSuspected = false
    if (!moved) return
    log.warn('clock.set_back', {
      jumpMs: -moved.byMs,
      deliveries: moved.deliveries,
      durationMs: Math.round(monotonicMs() - atMs),
    })
  }
}
