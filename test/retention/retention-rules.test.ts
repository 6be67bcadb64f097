import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { cutoffsOf, isOfCurrentPeriod, nextBatchRows, pauseMs } from '../../src/retention/retention-rules.ts'

const SETTINGS = { payloadRetentionDays: 30, logRetentionDays: 90 }
const DAY_MS = 86_400_000

describe('the cutoffs', () => {
  const now = new Date('2026-11-20T10:00:00.000Z')
  const cutoffs = cutoffsOf(now, SETTINGS)

  test('of payloads and log are whole days back', () => {
    expect(cutoffs.payloads.toISOString()).toBe('2026-10-21T10:00:00.000Z')
    expect(cutoffs.log.toISOString()).toBe('2026-08-22T10:00:00.000Z')
  })

  test('of everything else lie behind its last use', () => {
    const ageMs = (cutoff: Date) => now.getTime() - cutoff.getTime()
    expect(ageMs(cutoffs.idempotencyKeys)).toBeGreaterThan(DAY_MS)
    expect(ageMs(cutoffs.refreshTokens)).toBeGreaterThan(0)
    expect(ageMs(cutoffs.tokenFamilies)).toBeGreaterThan(30 * DAY_MS)
    expect(ageMs(cutoffs.otpCodes)).toBeGreaterThan(DAY_MS)
    expect(ageMs(cutoffs.otpTokens)).toBeGreaterThan(5 * 60_000)
  })

  test('never take the guards of a day that is still going on, in any time zone', () => {
    const zones = [...Intl.supportedValuesOf('timeZone'), 'Etc/GMT+12', 'Etc/GMT-14', 'Pacific/Kiritimati']
    const formats = zones.map((timeZone) => new Intl.DateTimeFormat('en-CA', { timeZone, dateStyle: 'short' }))
    const times = fc.date({ min: new Date('2020-01-01'), max: new Date('2040-01-01'), noInvalidDate: true })
    fc.assert(
      fc.property(times, fc.constantFrom(...formats), (time, format) => {
        expect(format.format(time) > cutoffsOf(time, SETTINGS).guardDay).toBe(true)
      }),
      { numRuns: 2000 },
    )
  })

  test('take the guards of the day before yesterday at the latest a day and a half after it', () => {
    expect(cutoffsOf(new Date('2026-11-20T11:59:59.999Z'), SETTINGS).guardDay).toBe('2026-11-18')
    expect(cutoffsOf(new Date('2026-11-20T12:00:00.000Z'), SETTINGS).guardDay).toBe('2026-11-19')
  })
})

describe('a delivery', () => {
  const firstFailureAt = new Date('2026-06-02T00:00:00Z')
  test.each([
    ['2026-06-02T00:00:00.000Z', true],
    ['2026-06-01T23:59:59.000Z', true],
    ['2026-11-20T00:00:00.000Z', true],
    ['2026-05-31T23:59:59.999Z', false],
  ])('that ended at %s is of the current period: %s', (endedAt, expected) => {
    expect(isOfCurrentPeriod(new Date(endedAt), firstFailureAt)).toBe(expected)
  })
})

describe('a batch', () => {
  test('grows while it is quick, and shrinks at once when it is slow', () => {
    expect(nextBatchRows(50, 3)).toBe(100)
    expect(nextBatchRows(1000, 3)).toBe(1000)
    expect(nextBatchRows(400, 20)).toBe(400)
    expect(nextBatchRows(400, 50)).toBeLessThan(200)
    expect(nextBatchRows(400, 400)).toBeLessThan(50)
    expect(nextBatchRows(25, 9000)).toBe(25)
  })

  test('that takes a time in proportion to its rows settles below 100 ms, however slow a row is', () => {
    fc.assert(
      fc.property(fc.double({ min: 0.001, max: 3.9, noNaN: true }), (msPerRow) => {
        let rows = 50
        const took: number[] = []
        for (let n = 0; n < 30; n++) {
          took.push(rows * msPerRow)
          rows = nextBatchRows(rows, rows * msPerRow)
        }
        expect(Math.max(...took.slice(10))).toBeLessThan(100)
      }),
    )
  })

  test('is followed by a pause as long as it took, within bounds', () => {
    expect([pauseMs(0), pauseMs(30), pauseMs(60_000)]).toEqual([5, 30, 1000])
  })
})
