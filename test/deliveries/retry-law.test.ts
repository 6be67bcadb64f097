/**
 * The retry law over ten thousand copies that never succeed, each from its first attempt to its end, as results are applied to
 * a webhook: the gaps, the warning, and the verdict that the last attempt brings.
 */
import { expect, test } from 'vitest'
import { seededRandom } from '../../scripts/crash/seeded-random.ts'
import { readConfig } from '../../src/config.ts'
import { applyResult, type LaneRecord, type RecordingRules } from '../../src/deliveries/recording-rules.ts'
import { HEALTHY } from '../../src/webhooks/webhook-health.ts'

const COPIES = 10_000
const MINUTE_MS = 60_000
const HOUR_MS = 60 * MINUTE_MS
const DAY_MS = 24 * HOUR_MS
/** Decisions 5. */
const WAITS_MS = [5000, 5 * MINUTE_MS, 30 * MINUTE_MS, 2 * HOUR_MS, 5 * HOUR_MS, 5 * HOUR_MS, 6 * HOUR_MS, 5 * HOUR_MS + 25 * MINUTE_MS] // prettier-ignore
const STARTS_MS = Date.UTC(2026, 10, 20, 10, 0, 0)
const MAX_ATTEMPTS = 50

interface Course {
  attempts: number
  /** From the end of the first failed attempt, in milliseconds. */
  warnedAfterMs: number[]
  deletedAfterMs: number | undefined
  faults: string[]
}

const config = readConfig({
  NODE_ENV: 'test',
  DATA_DIR: '/nonexistent',
  SECRETS_KEY: Buffer.alloc(32).toString('base64'),
  MYSQL_URL: 'mysql://unused/unused',
})

function run(random: () => number, asksToWait: boolean): Course {
  const rules: RecordingRules = { ...config, random }
  const lane: LaneRecord = { webhookId: 'w', state: 'active', epoch: 1, health: HEALTHY, seq: 0, moves: 0 }
  const course: Course = { attempts: 0, warnedAfterMs: [], deletedAfterMs: undefined, faults: [] }
  let startedAtMs = STARTS_MS
  let firstFailureAtMs: number | undefined
  for (let n = 1; n <= MAX_ATTEMPTS; n++) {
    const durationMs = Math.round(random() * 10_000)
    const retryAfterMs = asksToWait && random() < 0.5 ? random() * 2 * DAY_MS : undefined
    const endedAtMs = startedAtMs + durationMs
    firstFailureAtMs ??= endedAtMs
    const { delivery, effects } = applyResult(
      lane,
      {
        ...{
          token: 't',
          webhookId: 'w',
          eventId: 'e',
          epoch: 1,
          isTest: false,
          earlyAttempts: 0,
          isMessage: false,
          n,
          place: 1,
          ok: false,
        },
        ...{ dueAt: new Date(startedAtMs), startedAt: new Date(startedAtMs), durationMs, retryAfterMs, answer: null },
        ...{ class: 'http_status', status: 500, error: 'HTTP status 500' },
      },
      new Date(endedAtMs),
      rules,
    )
    course.attempts = n
    for (const { effect } of effects) {
      if (effect === 'warn') course.warnedAfterMs.push(endedAtMs - firstFailureAtMs)
      else course.deletedAfterMs = endedAtMs - firstFailureAtMs
    }
    if (!('retryAt' in delivery)) return course
    const gapMs = delivery.retryAt.getTime() - endedAtMs
    const leastMs = WAITS_MS[n - 1]!
    const untilDayMs = Math.max(0, firstFailureAtMs + DAY_MS - endedAtMs)
    const askedMs = Math.max(leastMs, Math.min(retryAfterMs ?? 0, 2 * leastMs, untilDayMs))
    const mostMs = askedMs + Math.min(leastMs / 10, 5 * MINUTE_MS)
    if (!(gapMs >= leastMs && gapMs >= Math.floor(askedMs) && gapMs <= Math.ceil(mostMs)))
      course.faults.push(`attempt ${n}: ${gapMs} ms, not ${askedMs} to ${mostMs}`)
    startedAtMs = delivery.retryAt.getTime()
  }
  course.faults.push('it never ends')
  return course
}

const coursesOf = (asksToWait: boolean) => {
  const random = seededRandom(21)
  return Array.from({ length: COPIES }, () => run(random, asksToWait))
}

test('ten thousand copies keep to their waits, and the ninth attempt brings the verdict from 24:00 to 24:35', () => {
  const courses = coursesOf(false)
  expect(courses.flatMap(({ faults }) => faults)).toEqual([])
  expect(new Set(courses.map(({ attempts }) => attempts))).toEqual(new Set([9]))
  const deleted = courses.map(({ deletedAfterMs }) => deletedAfterMs ?? -1)
  expect(Math.min(...deleted)).toBeGreaterThanOrEqual(DAY_MS)
  expect(Math.max(...deleted)).toBeLessThan(DAY_MS + 35 * MINUTE_MS)
  const warned = courses.map(({ warnedAfterMs }) => warnedAfterMs)
  expect(warned.every((times) => times.length === 1)).toBe(true)
  expect(Math.min(...warned.flat())).toBeGreaterThanOrEqual(12 * HOUR_MS)
  expect(Math.max(...warned.flat())).toBeLessThan(13.5 * HOUR_MS)
})

test('whatever endpoints ask them to wait, a wait at most doubles, and each still brings warning and verdict', () => {
  const courses = coursesOf(true)
  expect(courses.flatMap(({ faults }) => faults)).toEqual([])
  expect(courses.every(({ warnedAfterMs }) => warnedAfterMs.length === 1)).toBe(true)
  expect(courses.every(({ deletedAfterMs = 0 }) => deletedAfterMs >= DAY_MS)).toBe(true)
  expect(Math.max(...courses.map(({ attempts }) => attempts))).toBeLessThanOrEqual(9)
})
