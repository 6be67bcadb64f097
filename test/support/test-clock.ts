import type { Clock } from '../../src/clock.ts'

/** A clock that moves only when a test moves it. */
export class TestClock implements Clock {
  #nowMs: number

  constructor(now: string) {
    this.#nowMs = Date.parse(now)
  }

  nowMs(): number {
    return this.#nowMs
  }

  now(): Date {
    return new Date(this.#nowMs)
  }

  set(now: string): void {
    this.#nowMs = Date.parse(now)
  }

  advance(milliseconds: number): void {
    this.#nowMs += milliseconds
  }
}
