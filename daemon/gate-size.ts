/**
 * How many requests to healthy webhooks a daemon has in flight, and how long the turns of those are that wait. While it waits for its
 * endpoints, more requests bring more answers, and the one that a lane waits for comes sooner where turns are short. While it is busy
 * itself more of them bring none, and each costs more, because more connections share the processor's caches; there the turns are
 * long, because what a lane reads, sends and removes in one go costs less, and they are over as soon.
 */

export interface GateSize {
  /** Requests in flight. */
  limit: number
  /** Requests of a turn. */
  turn: number
}

export const WAITING_SIZE: GateSize = { limit: 128, turn: 20 }
const BUSY_SIZE: GateSize = { limit: 64, turn: 200 }
/** Shares of its time that a daemon does not wait in. Between the two all stays as it is. */
const BUSY_FROM = 0.7
const WAITING_BELOW = 0.5

export class GateSizer {
  #size = WAITING_SIZE
  #lookedAt = performance.eventLoopUtilization()

  /** @returns the size by what this process has done since the last look */
  look(): GateSize {
    const now = performance.eventLoopUtilization()
    const { utilization } = performance.eventLoopUtilization(now, this.#lookedAt)
    this.#lookedAt = now
    this.#size = gateSizeAfter(this.#size, utilization)
    return this.#size
  }
}

/**
 * @param size the one so far
 * @param utilization of the event loop since the last look, 0 to 1
 */
export function gateSizeAfter(size: GateSize, utilization: number): GateSize {
  if (utilization >= BUSY_FROM) return BUSY_SIZE
  return utilization < WAITING_BELOW ? WAITING_SIZE : size
}
