/**
 * How many events the next fan-out takes, and which it leaves out, so that neither a batch that is too large nor an event that
 * can't be fanned out stops the others: what fails is halved until the event that is to blame stands alone.
 */

/** Of a fan-out when nothing is wrong. */
export const FULL_FAN_OUT = 500
/** A fan-out that took longer is not made larger: twice that comes near the 5 s after which a silent connection is ended. */
const SLOW_MS = 2000
/** For how long an event that failed alone is stepped over. */
const ASIDE_MS = 60_000
/** Then the one that has been stepped over for the longest is tried again. */
const MOST_ASIDE = 500
/** As many as it takes to find one event among all: what fails more often than that, without a success between, has to wait. */
const FAILURES_AT_ONCE = 10

/** Whether a fan-out was such that the next two may go at once: more events wait, and each stays far from being too large. */
export function allowsTwo(events: number, durationMs: number): boolean {
  return events === FULL_FAN_OUT && durationMs < SLOW_MS / 2
}

export class FanOutPace {
  #limit = FULL_FAN_OUT
  #failures = 0
  /** It was alone when the connection ended. */
  #suspectId: string | undefined
  /** By event: monotonic, when it is tried again. */
  readonly #aside = new Map<string, number>()

  /** @param nowMs monotonic */
  next(nowMs: number): { limit: number; exceptIds: string[] } {
    for (const [eventId, untilMs] of this.#aside) {
      if (untilMs > nowMs) break
      this.#aside.delete(eventId)
      // It is likely to fail again, and may be the first: it alone does.
      this.#limit = 1
    }
    return { limit: this.#limit, exceptIds: [...this.#aside.keys()] }
  }

  succeeded(durationMs: number): void {
    this.#failures = 0
    this.#suspectId = undefined
    if (durationMs < SLOW_MS) this.#limit = Math.min(2 * this.#limit, FULL_FAN_OUT)
  }

  /**
   * @param eventIds the batch, which was rolled back
   * @param isConnectionFault it may have met an innocent one, when the database went: only the second time counts
   * @returns the event that is stepped over from now on, if it was alone
   */
  failed(eventIds: string[], nowMs: number, isConnectionFault = false): string | undefined {
    this.#failures += 1
    this.#limit = Math.max(1, Math.floor(eventIds.length / 2))
    if (eventIds.length > 1) return undefined
    const [eventId] = eventIds
    if (eventId === undefined) return undefined
    if (isConnectionFault && eventId !== this.#suspectId) {
      this.#suspectId = eventId
      return undefined
    }
    if (this.#aside.size >= MOST_ASIDE) this.#aside.delete(this.#aside.keys().next().value!)
    this.#aside.set(eventId, nowMs + ASIDE_MS)
    return eventId
  }

  /** Whether the next fan-out need not wait after one that failed. */
  get isHopeful(): boolean {
    return this.#failures < FAILURES_AT_ONCE
  }

  get hasAside(): boolean {
    return this.#aside.size > 0
  }
}
