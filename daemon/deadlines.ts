/**
 * Deadlines that all lie equally far ahead: a list with one timer, where a timer for each of thousands of requests a second
 * would cost as much as signing them.
 */
import { monotonicMs } from '../src/clock.ts'

/** One that somebody waits for. Linked both ways, so that the many that never expire leave at no cost. */
export interface Deadline<T> {
  readonly owner: T
  readonly atMs: number
  previous: Deadline<T> | undefined
  next: Deadline<T> | undefined
  over: boolean
}

export class Deadlines<T> {
  readonly #afterMs: number
  readonly #expire: (owner: T) => void
  /** In the order of their times, because all wait equally long. */
  #first: Deadline<T> | undefined
  #last: Deadline<T> | undefined
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
    const deadline: Deadline<T> = { owner, atMs, previous: this.#last, next: undefined, over: false }
    if (this.#last) this.#last.next = deadline
    else this.#first = deadline
    this.#last = deadline
    this.#timer ??= setTimeout(() => this.#expireDue(), this.#afterMs)
    return deadline
  }

  remove(deadline: Deadline<T>): void {
    if (deadline.over) return
    deadline.over = true
    const { previous, next } = deadline
    if (previous) previous.next = next
    else this.#first = next
    if (next) next.previous = previous
    else this.#last = previous
    // One among the old objects would keep all that come after it from being collected as young ones, bodies and all.
    deadline.previous = undefined
    deadline.next = undefined
  }

  /** Nothing expires any more. */
  close(): void {
    clearTimeout(this.#timer)
    while (this.#first) this.remove(this.#first)
  }

  #expireDue(): void {
    this.#timer = undefined
    const nowMs = monotonicMs()
    for (let due = this.#first; due; due = this.#first) {
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
