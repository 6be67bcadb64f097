/**
 * Webhooks whose settings can't be used: each is left alone for a while, and reported once in that time.
 */
import { monotonicMs } from '../src/clock.ts'

const PAUSE_MS = 60_000

export class BrokenLanes {
  readonly #untilMs = new Map<string, number>()

  add(webhookId: string): void {
    this.#untilMs.set(webhookId, monotonicMs() + PAUSE_MS)
  }

  has(webhookId: string): boolean {
    const until = this.#untilMs.get(webhookId)
    if (until === undefined) return false
    if (monotonicMs() < until) return true
    this.#untilMs.delete(webhookId)
    return false
  }

  all(): string[] {
    return [...this.#untilMs.keys()].filter((webhookId) => this.has(webhookId))
  }
}
