/**
 * Notices when the shared job store is no help: a save that does not come back in time, or a lane that is offered again and
 * again because nobody runs its job.
 */
import { monotonicMs } from '../src/clock.ts'

/** The store must have answered by then (design: 1 s). */
const ANSWER_WITHIN_MS = 1000
/** A lane offered again so long after its first offer, with nobody running it, is offered to the embedded store. */
const OVERDUE_AFTER_MS = 1500
/** Offers further apart than this don't belong together. */
const FORGET_AFTER_MS = 5000

export class OfferBook {
  readonly #offers = new Map<string, { firstAtMs: number; lastAtMs: number }>()
  #sweptAtMs = monotonicMs()

  /** Notes an offer. @returns whether the lane's job should have been run by now */
  isOverdue(webhookId: string): boolean {
    const nowMs = monotonicMs()
    this.#sweep(nowMs)
    const offer = this.#offers.get(webhookId)
    const firstAtMs = offer && nowMs - offer.lastAtMs < FORGET_AFTER_MS ? offer.firstAtMs : nowMs
    const overdue = nowMs - firstAtMs >= OVERDUE_AFTER_MS
    if (overdue) this.#offers.delete(webhookId)
    else this.#offers.set(webhookId, { firstAtMs, lastAtMs: nowMs })
    return overdue
  }

  /** @returns what the store answered, or false when it took too long or failed */
  async unlessLate(answer: Promise<boolean>): Promise<boolean> {
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<false>((resolve) => {
      timer = setTimeout(() => resolve(false), ANSWER_WITHIN_MS)
    })
    try {
      return await Promise.race([answer.catch(() => false), late])
    } finally {
      clearTimeout(timer)
    }
  }

  #sweep(nowMs: number): void {
    if (nowMs - this.#sweptAtMs < FORGET_AFTER_MS) return
    this.#sweptAtMs = nowMs
    for (const [webhookId, { lastAtMs }] of this.#offers) {
      if (nowMs - lastAtMs >= FORGET_AFTER_MS) this.#offers.delete(webhookId)
    }
  }
}
