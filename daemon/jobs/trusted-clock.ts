import { monotonicMs, type Clock } from '../../src/clock.ts'

/** More than clocks are set by all the time. */
const JUMP_MS = 60_000
/** So long a clock that was set forward has to stay as it is. */
const TRUST_AFTER_MS = 600_000

/**
 * What is purged is gone for good: by a clock that was set forward a moment ago, and may be put right again, nothing is.
 * @returns whether the clock may be gone by; to be asked each minute or so
 */
export function trustedClock(clock: Clock): () => boolean {
  let aheadMs = 0
  let sinceMs = -Infinity
  let last = { timeMs: clock.nowMs(), atMs: monotonicMs() }
  return () => {
    const [timeMs, atMs] = [clock.nowMs(), monotonicMs()]
    const gainedMs = timeMs - last.timeMs - (atMs - last.atMs)
    last = { timeMs, atMs }
    if (gainedMs > JUMP_MS) sinceMs = atMs
    if (Math.abs(gainedMs) > JUMP_MS) aheadMs += gainedMs
    if (aheadMs <= JUMP_MS || atMs - sinceMs > TRUST_AFTER_MS) {
      aheadMs = 0
      return true
    }
    return false
  }
}
