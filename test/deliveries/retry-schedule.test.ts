import { describe, expect, test } from 'vitest'
import { nextWaitMs, parseRetryAfter } from '../../src/deliveries/retry-schedule.ts'

const SCHEDULE = [5, 300, 1800, 7200, 18000, 18000, 21600, 19500]
const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS

const failed = (n: number, retryAfterMs?: number, untilVerdictMs = DAY_MS) => ({ n, retryAfterMs, untilVerdictMs })

describe('the wait after a failed attempt', () => {
  test('follows the schedule: 5 s, 5 min, 30 min, 2 h, 5 h, 5 h, 6 h, 5 h 25 min', () => {
    const waits = SCHEDULE.map((_, index) => nextWaitMs(failed(index + 1), SCHEDULE, 0))
    expect(waits).toEqual(SCHEDULE.map((seconds) => seconds * 1000))
  })

  test('ends after nine attempts, the seventh after 12 h and the last after 24 h', () => {
    const startsMs = [0]
    for (let n = 1; n <= 8; n++) startsMs.push(startsMs.at(-1)! + nextWaitMs(failed(n), SCHEDULE, 0)!)
    expect(startsMs).toHaveLength(9)
    expect(startsMs[6]).toBeGreaterThanOrEqual(12 * HOUR_MS)
    expect(startsMs[6]).toBeLessThan(13 * HOUR_MS)
    expect(startsMs[8]).toBeGreaterThanOrEqual(DAY_MS)
    expect(nextWaitMs(failed(9), SCHEDULE, 0)).toBeUndefined()
  })

  test('jitter is only added, at most 10 % and never more than 5 minutes', () => {
    for (const [index, seconds] of SCHEDULE.entries()) {
      const most = nextWaitMs(failed(index + 1), SCHEDULE, 1)!
      expect(most - seconds * 1000).toBe(Math.min(seconds * 100, 5 * 60_000))
    }
  })

  test('Retry-After lengthens a wait, at most to twice itself', () => {
    expect(nextWaitMs(failed(2, 400_000), SCHEDULE, 0)).toBe(400_000)
    expect(nextWaitMs(failed(2, DAY_MS), SCHEDULE, 0)).toBe(600_000)
    expect(nextWaitMs(failed(2, DAY_MS), SCHEDULE, 1)).toBe(600_000)
  })

  test('Retry-After never shortens a wait', () => {
    expect(nextWaitMs(failed(2, 1000), SCHEDULE, 0)).toBe(300_000)
  })

  test('Retry-After never moves an attempt past the 24 h point', () => {
    expect(nextWaitMs(failed(7, DAY_MS, 6.5 * HOUR_MS), SCHEDULE, 0)).toBe(6.5 * HOUR_MS)
    expect(nextWaitMs(failed(8, DAY_MS, HOUR_MS), SCHEDULE, 0)).toBe(19_500_000)
  })
})

describe('Retry-After', () => {
  const nowMs = Date.UTC(2026, 10, 20, 10, 0, 0)

  test('is read as seconds or as an HTTP date', () => {
    expect(parseRetryAfter('120', nowMs)).toBe(120_000)
    expect(parseRetryAfter('Fri, 20 Nov 2026 10:00:30 GMT', nowMs)).toBe(30_000)
    expect(parseRetryAfter('99999999999999', nowMs)).toBe(999_999_999_000)
    expect(parseRetryAfter('9'.repeat(400), nowMs)).toBe(999_999_999_000)
  })

  test.each(['Friday, 20-Nov-26 10:00:30 GMT', 'Fri Nov 20 10:00:30 2026'])('is read as one of old: %s', (value) => {
    expect(parseRetryAfter(value, nowMs)).toBe(30_000)
  })

  test.each([
    ['70', Date.UTC(2070, 10, 20) - Date.UTC(2026, 10, 20)],
    ['77', 0],
    ['94', 0],
  ])('a year of two digits is of this century, unless that is more than 50 years ahead: %s', (year, expected) => {
    expect(parseRetryAfter(`Friday, 20-Nov-${year} 10:00:00 GMT`, nowMs)).toBe(expected)
  })

  test('a date in the past asks for nothing', () => {
    expect(parseRetryAfter('Fri, 20 Nov 2026 09:00:00 GMT', nowMs)).toBe(0)
  })

  test.each([undefined, '', '-5', '1.5', 'soon', '2026-11-20', 'Fri Nov 20 10:00:30 2026 IST'])(
    '%s says nothing',
    (value) => {
      expect(parseRetryAfter(value, nowMs)).toBeUndefined()
    },
  )
})
