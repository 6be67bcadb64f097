/**
 * Offers due lanes that nobody owns, each of them not too often.
 */
import { monotonicMs } from '../src/clock.ts'
import type { DueLane } from '../src/deliveries/work-repository.ts'

/** A lane is offered at most so often; its job may still be on its way. */
const AGAIN_MS = 1000
/** With more on record, those are forgotten that may be offered again. */
const MOST_ON_RECORD = 2000

export interface LaneOffersOptions {
  owns: (webhookId: string) => boolean
  offer: (lane: DueLane) => void
}

export class LaneOffers {
  readonly #options: LaneOffersOptions
  readonly #offeredAtMs = new Map<string, number>()

  constructor(options: LaneOffersOptions) {
    this.#options = options
  }

  offer(lanes: DueLane[]): void {
    const nowMs = monotonicMs()
    if (this.#offeredAtMs.size > MOST_ON_RECORD) {
      for (const [webhookId, atMs] of this.#offeredAtMs) {
        if (nowMs - atMs >= AGAIN_MS) this.#offeredAtMs.delete(webhookId)
      }
    }
    for (const lane of lanes) {
      if (this.#options.owns(lane.webhookId)) continue
      if (nowMs - (this.#offeredAtMs.get(lane.webhookId) ?? -Infinity) < AGAIN_MS) continue
      this.#offeredAtMs.set(lane.webhookId, nowMs)
      this.#options.offer(lane)
    }
  }
}
