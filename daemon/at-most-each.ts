/**
 * Something that many may ask for, and that need not be done more often than that: at once when it was not done lately, and else
 * once for all who have asked meanwhile.
 */
import { monotonicMs } from '../src/clock.ts'

export interface AtMostEach {
  ask(): void
  /** What was asked for and not done yet is not done. */
  stop(): void
}

export function atMostEach(everyMs: number, run: () => void): AtMostEach {
  let lastAtMs = -Infinity
  let timer: NodeJS.Timeout | undefined
  const runNow = () => {
    timer = undefined
    lastAtMs = monotonicMs()
    run()
  }
  return {
    ask() {
      if (timer) return
      const waitMs = lastAtMs + everyMs - monotonicMs()
      if (waitMs > 0) timer = setTimeout(runNow, waitMs)
      else runNow()
    },
    stop: () => clearTimeout(timer),
  }
}
