/**
 * Deadlines that all lie equally far ahead: a queue with one timer, where a timer for each of thousands of requests a second
 * would cost as much as signing them.
 */
import { monotonicMs } from '../src/clock.ts'

export class Deadlines {
  readonly #afterMs: number
  /** In the order of their times, because all wait equally long. */
  readonly #waiting = new Map<() => void, number>()
  #timer: NodeJS.Timeout | undefined

  /** @param afterMs from `add` to the call */
  constructor(afterMs: number) {
    this.#afterMs = afterMs
  }

  /** @param expire is called once when the time is over, unless it was removed before */
  add(expire: () => void): void {
    this.#waiting.set(expire, monotonicMs() + this.#afterMs)
    this.#timer ??= setTimeout(() => this.#expire(), this.#afterMs)
  }

  remove(expire: () => void): void {
    this.#waiting.delete(expire)
  }

  /** Nothing expires any more. */
  close(): void {
    clearTimeout(this.#timer)
    this.#waiting.clear()
  }

  #expire(): void {
    this.#timer = undefined
    const nowMs = monotonicMs()
    for (const [expire, atMs] of this.#waiting) {
      if (atMs > nowMs) {
        this.#timer = setTimeout(() => this.#expire(), Math.max(1, Math.ceil(atMs - nowMs)))
        return
      }
      this.#waiting.delete(expire)
      expire()
    }
  }
}
