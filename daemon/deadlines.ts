/**
 * Deadlines that all lie equally far ahead: a list with one timer, where a timer for each of thousands of requests a second
 * would cost as much as signing them.
 */
import { monotonicMs } from '../src/clock.ts'
import { LinkedLine, type Linked } from '../src/linked-line.ts'

/**
 * By so much a deadline is late only where this process stood still: it had something long to do, was stopped, or is on a machine that
 * was. What has come meanwhile is looked at before anything expires.
 */
export const STOOD_STILL_MS = 50

/** One that somebody waits for, as long as it stands in a line: the many that never expire leave at no cost. */
export interface Deadline<T> extends Linked<Deadline<T>> {
  readonly owner: T
  readonly atMs: number
}

export class Deadlines<T> {
  readonly #afterMs: number
  readonly #expire: (owner: T) => void
  /** In the order of their times, because all wait equally long. */
  readonly #waiting = new LinkedLine<Deadline<T>>()
  #timer: NodeJS.Timeout | undefined

  /**
   * @param afterMs from `add` to the call
   * @param expire is called once for each whose time is over, unless it was removed before
   */
  constructor(afterMs: number, expire: (owner: T) => void) {
    this.#afterMs = afterMs
    this.#expire = expire
  }

  /** @param nowMs monotonic */
  add(owner: T, nowMs: number): Deadline<T> {
    const atMs = nowMs + this.#afterMs
    const deadline: Deadline<T> = { owner, atMs, line: undefined, previous: undefined, next: undefined }
    this.#waiting.add(deadline)
    this.#timer ??= setTimeout(() => this.#expireDue(), this.#afterMs)
    return deadline
  }

  remove(deadline: Deadline<T>): void {
    this.#waiting.remove(deadline)
  }

  /** Nothing expires any more. */
  close(): void {
    clearTimeout(this.#timer)
    while (this.#waiting.shift());
  }

  /** @param hasLooked what had come when the time was over has been read */
  #expireDue(hasLooked = false): void {
    const nowMs = monotonicMs()
    const { first } = this.#waiting
    if (!hasLooked && first && nowMs - first.atMs >= STOOD_STILL_MS) {
      setImmediate(() => this.#expireDue(true))
      return
    }
    clearTimeout(this.#timer)
    this.#timer = undefined
    for (let due = this.#waiting.first; due; due = this.#waiting.first) {
      if (due.atMs > nowMs) {
        // One that was added meanwhile may have set a later one.
        clearTimeout(this.#timer)
        this.#timer = setTimeout(() => this.#expireDue(), Math.max(1, Math.ceil(due.atMs - nowMs)))
        return
      }
      this.remove(due)
      this.#expire(due.owner)
    }
  }
}
