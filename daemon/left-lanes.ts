/**
 * When this daemon has left which lane. What a transaction that began before has read of it may be from before as well, however
 * late its answer comes: it may be free, or another daemon's, by now.
 */
import { monotonicMs } from '../src/clock.ts'

/** No transaction of a fan-out takes longer: a statement that is unanswered for 5 s ends its connection. */
const KEPT_MS = 30_000

export class LeftLanes {
  /** The one that was left first stands first. */
  readonly #atMs = new Map<string, number>()

  add(webhookId: string): void {
    const nowMs = monotonicMs()
    this.#atMs.delete(webhookId)
    this.#atMs.set(webhookId, nowMs)
    for (const [oldest, atMs] of this.#atMs) {
      if (nowMs - atMs < KEPT_MS) break
      this.#atMs.delete(oldest)
    }
  }

  /** @param ms monotonic */
  isLeftSince(webhookId: string, ms: number): boolean {
    return (this.#atMs.get(webhookId) ?? -Infinity) >= ms
  }
}
