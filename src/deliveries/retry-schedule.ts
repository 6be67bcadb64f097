/**
 * When a failed delivery is tried again (decisions 5). Pure.
 */

/** Jitter is at most this share of the wait … */
const JITTER_SHARE = 0.1
/** … and never more than this. */
const JITTER_MAX_MS = 5 * 60_000
/** `Retry-After` can lengthen a wait to at most this many times itself. */
const RETRY_AFTER_FACTOR = 2

export interface FailedAttempt {
  /** Number of the attempt that failed, from 1. */
  n: number
  /** What `Retry-After` asked for, in milliseconds. */
  retryAfterMs: number | undefined
  /** How long the webhook still has until it has failed for DELETE_AFTER_SECONDS, in milliseconds. */
  untilVerdictMs: number
}

/**
 * Milliseconds until the next attempt, or undefined when that was the last one: the delivery is exhausted.
 * @param random from 0 to 1; jitter is only ever added
 */
export function nextWaitMs(failed: FailedAttempt, scheduleSeconds: number[], random: number): number | undefined {
  const seconds = scheduleSeconds[failed.n - 1]
  if (seconds === undefined) return undefined
  const waitMs = seconds * 1000
  const jitterMs = random * Math.min(waitMs * JITTER_SHARE, JITTER_MAX_MS)
  const askedMs = Math.min((failed.retryAfterMs ?? 0) + jitterMs, waitMs * RETRY_AFTER_FACTOR, failed.untilVerdictMs)
  return Math.round(Math.max(waitMs + jitterMs, askedMs))
}

/** More than any wait: some thirty years. */
const LONGEST_SECONDS = 999_999_999

/** The three forms of an HTTP date (RFC 9110 5.6.7): today's, that of RFC 850, and that of C's asctime, which names no zone. */
const IMF_FIXDATE = /^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/
const RFC850_DATE = /^[A-Z][a-z]{5,8}, (\d{2})-([A-Z][a-z]{2})-(\d{2}) (\d{2}:\d{2}:\d{2} GMT)$/
const ASCTIME_DATE = /^[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d{2}:\d{2}:\d{2} \d{4}$/

/**
 * Reads `Retry-After`: seconds or an HTTP date (RFC 9110 10.2.3).
 * @returns milliseconds from now, or undefined when it says nothing usable
 */
export function parseRetryAfter(value: string | undefined, nowMs: number): number | undefined {
  if (value === undefined) return undefined
  if (/^\d+$/.test(value)) return Math.min(Number(value), LONGEST_SECONDS) * 1000
  const at = parseHttpDate(value, nowMs)
  return Number.isNaN(at) ? undefined : Math.max(0, at - nowMs)
}

/** @returns NaN where it is none */
function parseHttpDate(value: string, nowMs: number): number {
  if (IMF_FIXDATE.test(value)) return Date.parse(value)
  if (ASCTIME_DATE.test(value)) return Date.parse(`${value} GMT`)
  const [, day, month, year, time] = RFC850_DATE.exec(value) ?? []
  if (year === undefined) return NaN
  const century = Math.floor(new Date(nowMs).getUTCFullYear() / 100)
  const inCentury = (n: number) => Date.parse(`${day} ${month} ${n}${year} ${time}`)
  // Two digits of a year: what seems more than 50 years ahead is past.
  const latest = new Date(nowMs)
  latest.setUTCFullYear(latest.getUTCFullYear() + 50)
  return inCentury(century) > latest.getTime() ? inCentury(century - 1) : inCentury(century)
}
