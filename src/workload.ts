/**
 * How many requests wait for the database, and no more than that: what comes in faster than it can be answered would wait behind
 * all that came before it, until nobody's time is enough. Whoever is one too many is told so at once.
 */
import { DatabaseBudget } from '../db/connection.ts'

/** A burst of so many is taken whole. Where 1,000 a second are answered the last of them still has its answer in one. */
export const MOST_WAITING = 1024

export class Workload {
  readonly #most: number
  #waiting = 0

  constructor(most = MOST_WAITING) {
    this.#most = most
  }

  /** Whether a further request is one too many. */
  get isFull(): boolean {
    return this.#waiting >= this.#most
  }

  /** Of a request. Only what waits for the database counts: a client that takes its time with a body keeps nobody out. */
  budget(): DatabaseBudget {
    return new CountedBudget((change) => (this.#waiting += change))
  }
}

class CountedBudget extends DatabaseBudget {
  readonly #count: (change: 1 | -1) => void

  constructor(count: (change: 1 | -1) => void) {
    super()
    this.#count = count
  }

  override async spend<T>(work: () => Promise<T>): Promise<T> {
    this.#count(1)
    try {
      return await super.spend(work)
    } finally {
      this.#count(-1)
    }
  }
}
