/**
 * How many requests to healthy webhooks a daemon has in flight. While it waits for its endpoints, more of them bring more answers;
 * while it is busy itself they bring none, and each costs more, because more connections share the processor's caches.
 */

export const MOST_IN_FLIGHT = 128
const BUSY_IN_FLIGHT = 64
/** Shares of its time that a daemon does not wait in. Between the two all stays as it is. */
const BUSY_FROM = 0.7
const WAITING_BELOW = 0.5

export class InFlightLimit {
  #limit = MOST_IN_FLIGHT
  #lookedAt = performance.eventLoopUtilization()

  /** @returns the limit by what this process has done since the last look */
  look(): number {
    const now = performance.eventLoopUtilization()
    const { utilization } = performance.eventLoopUtilization(now, this.#lookedAt)
    this.#lookedAt = now
    this.#limit = inFlightLimit(this.#limit, utilization)
    return this.#limit
  }
}

/**
 * @param limit the one so far
 * @param utilization of the event loop since the last look, 0 to 1
 */
export function inFlightLimit(limit: number, utilization: number): number {
  if (utilization >= BUSY_FROM) return BUSY_IN_FLIGHT
  return utilization < WAITING_BELOW ? MOST_IN_FLIGHT : limit
}
