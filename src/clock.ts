/**
 * Time. The only file that reads a clock: everything else gets `now` passed in, or a `Clock`.
 */
import { performance } from 'node:perf_hooks'

export interface Clock {
  /** UTC, milliseconds since 1970, as the database sees it. */
  nowMs(): number
  now(): Date
}

export type ClockName = 'database' | 'process'

/** What took longer says little about when it was made. */
const SLOWEST_MS = 1000
const SAMPLE_MS = 1000
/** Less is what clocks are set by all the time. */
const JUMP_MS = 1000

/** Milliseconds that never jump. For durations and deadlines, never for a stored time. */
export function monotonicMs(): number {
  return performance.now()
}

/** The process's own clock: for the few places that run before a database is there (certificates, log lines). */
export const processClock: Clock = {
  nowMs: () => Date.now(),
  now: () => new Date(),
}

/**
 * A clock that follows the database's: sampled now and then, monotonic in between. A process whose own clock is wrong
 * or jumps decides nothing by it.
 */
export class DatabaseClock implements Clock {
  #offsetMs = processClock.nowMs() - monotonicMs()
  #timer: NodeJS.Timeout | undefined

  nowMs(): number {
    return Math.floor(monotonicMs() + this.#offsetMs)
  }

  now(): Date {
    return new Date(this.nowMs())
  }

  /**
   * Samples once and then each second.
   * @param readDatabaseTimeMs asks the database for its UTC time in milliseconds
   * @param onJump told once when a clock moved by more than a second against the monotonic one, in ms: the database's, which
   * this one follows, or the process's own, which decides nothing
   * @throws what the first sample throws; a later failed sample keeps the last offset
   */
  async follow(
    readDatabaseTimeMs: () => Promise<number>,
    onJump: (jumpMs: number, from: ClockName) => void,
  ): Promise<void> {
    // However long it takes: half of that is nearer than the process's own clock may be.
    await this.#sample(readDatabaseTimeMs, () => {}, Infinity)
    let processOffsetMs = processClock.nowMs() - monotonicMs()
    this.#timer = setInterval(() => {
      const offsetMs = processClock.nowMs() - monotonicMs()
      const jumpMs = offsetMs - processOffsetMs
      processOffsetMs = offsetMs
      if (Math.abs(jumpMs) > JUMP_MS) onJump(Math.round(jumpMs), 'process')
      this.#sample(readDatabaseTimeMs, onJump).catch(() => {})
    }, SAMPLE_MS)
    this.#timer.unref()
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  async #sample(
    readDatabaseTimeMs: () => Promise<number>,
    onJump: (jumpMs: number, from: ClockName) => void,
    slowestMs = SLOWEST_MS,
  ): Promise<void> {
    const sentAt = monotonicMs()
    const databaseMs = await readDatabaseTimeMs()
    const answeredAt = monotonicMs()
    // The last offset is better than a bad one.
    if (answeredAt - sentAt > slowestMs) return
    const offsetMs = databaseMs - (sentAt + answeredAt) / 2
    const jumpMs = offsetMs - this.#offsetMs
    this.#offsetMs = offsetMs
    if (Math.abs(jumpMs) > JUMP_MS) onJump(Math.round(jumpMs), 'database')
  }
}
