/**
 * The event whose transaction is about to end, as whoever has written it tells: a quiet daemon begins with its fan-out at once, which
 * waits for that end in the database. Seen is not on disk yet: what is sent waits for the word that it is committed, or for the
 * fan-out's own COMMIT, behind which it is on disk too.
 */
import { monotonicMs } from '../src/clock.ts'

/**
 * Where so many one after the other were foretold too soon, or another daemon was first, none is foreseen for a while, and for twice as
 * long each time that the next one is in vain as well. A burst is over soon, another daemon is not.
 */
const MOST_TOO_SOON = 3
const AGAIN_MS = 250
const AGAIN_MOST_MS = 10_000

interface Foreseen {
  eventId: string
  state: 'under way' | 'routed' | 'too soon'
  isCommitted: boolean
}

export class Foresight {
  readonly #nowMs: () => number
  #last: Foreseen | undefined
  #whenCommitted: (() => void) | undefined
  /** One after the other. */
  #tooSoon = 0
  #fromMs = -Infinity

  /** @param nowMs a clock that never jumps */
  constructor(nowMs = monotonicMs) {
    this.#nowMs = nowMs
  }

  /** @returns whether its fan-out is to be tried now */
  begin(eventId: string): boolean {
    if (this.#nowMs() < this.#fromMs) return false
    this.#last = { eventId, state: 'under way', isCommitted: false }
    this.#whenCommitted = undefined
    return true
  }

  /** Its fan-out is to be tried. */
  get eventId(): string | undefined {
    return this.#last?.state === 'under way' ? this.#last.eventId : undefined
  }

  get isCommitted(): boolean {
    return this.#last?.isCommitted === true
  }

  /** @param tell called when somebody says that it is committed: now, if that was said, or before `end` */
  whenCommitted(tell: () => void): void {
    if (this.isCommitted) tell()
    else this.#whenCommitted = tell
  }

  /** Somebody says that this event is committed. @returns whether it is, or will be, fanned out without a further hint */
  covers(eventId: string): boolean {
    if (this.#last?.eventId !== eventId) return false
    this.#last.isCommitted = true
    this.#whenCommitted?.()
    this.#whenCommitted = undefined
    return this.#last.state !== 'too soon'
  }

  /** @param isRouted false: it could not be seen, or was somebody else's */
  end(isRouted: boolean): void {
    this.#whenCommitted = undefined
    if (this.#last) this.#last.state = isRouted ? 'routed' : 'too soon'
    this.#tooSoon = isRouted ? 0 : this.#tooSoon + 1
    if (this.#tooSoon < MOST_TOO_SOON) return
    const waitMs = AGAIN_MS * 2 ** (this.#tooSoon - MOST_TOO_SOON)
    this.#fromMs = this.#nowMs() + Math.min(waitMs, AGAIN_MOST_MS)
  }
}
