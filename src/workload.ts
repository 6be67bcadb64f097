/**
 * How many requests wait for the database, and no more than that: what comes in faster than it can be answered would wait behind
 * all that came before it, until nobody's time is enough. Whoever is one too many is told so at once.
 */
import { DatabaseBudget } from '../db/connection.ts'
import { monotonicMs } from './clock.ts'

/** A burst of so many is taken whole. */
export const MOST_WAITING = 1024
/** With no more than that it counts as over. */
const CALM = 64
/** What lasts for longer is no burst: then it is more than can be answered. */
const BURST_MS = 500
/**
 * While that lasts so many wait, or what is answered in so many milliseconds where that is more: a machine that is busy with what
 * it refuses reads late what it will let in, so that each of them waits several times as long.
 */
const LEAST_WAITING = 128
const WAIT_MS = 100
/** Over how long the answers are counted. */
const RATE_MS = 1000

export class Workload {
  readonly #most: number
  #waiting = 0
  #busySinceMs = Infinity
  #answered = 0
  #countedSinceMs = monotonicMs()
  #answeredPerMs = 0

  constructor(most = MOST_WAITING) {
    this.#most = most
  }

  /** Whether a further request is one too many. */
  get isFull(): boolean {
    if (this.#waiting < LEAST_WAITING && this.#waiting < this.#most) return false
    return this.#waiting >= this.#most || (this.#isLasting && this.#waiting >= this.#answeredPerMs * WAIT_MS)
  }

  get #isLasting(): boolean {
    return monotonicMs() - this.#busySinceMs > BURST_MS
  }

  /** Of a request. Only what waits for the database counts: a client that takes its time with a body keeps nobody out. */
  budget(): DatabaseBudget {
    return new CountedBudget(this)
  }

  begin(): void {
    this.#waiting += 1
    if (this.#waiting === CALM + 1) this.#busySinceMs = monotonicMs()
  }

  end(): void {
    this.#waiting -= 1
    if (this.#waiting === CALM) this.#busySinceMs = Infinity
    this.#answered += 1
    const nowMs = monotonicMs()
    if (nowMs - this.#countedSinceMs < RATE_MS) return
    this.#answeredPerMs = this.#answered / (nowMs - this.#countedSinceMs)
    this.#answered = 0
    this.#countedSinceMs = nowMs
  }
}

class CountedBudget extends DatabaseBudget {
  readonly #workload: Workload

  constructor(workload: Workload) {
    super()
    this.#workload = workload
  }

  override async spend<T>(work: () => Promise<T>): Promise<T> {
    this.#workload.begin()
    try {
      return await super.spend(work)
    } finally {
      this.#workload.end()
    }
  }
}
