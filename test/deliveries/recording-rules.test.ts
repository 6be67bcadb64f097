import { describe, expect, test } from 'vitest'
import {
  applyResult,
  type AttemptResult,
  type LaneRecord,
  type RecordingRules,
} from '../../src/deliveries/recording-rules.ts'
import { HEALTHY } from '../../src/webhooks/webhook-health.ts'

const HOUR_MS = 3_600_000
const NOW = new Date('2026-11-20T10:00:00.000Z')

const rules: RecordingRules = {
  retryScheduleSeconds: [5, 30],
  random: () => 0,
  warnAfterSeconds: 12 * 3600,
  warnByClockSeconds: 23 * 3600,
  deleteAfterSeconds: 24 * 3600,
  minWarningLeadSeconds: 0,
}

const lane = (fields: Partial<LaneRecord> = {}): LaneRecord => ({
  webhookId: 'w',
  state: 'active',
  epoch: 3,
  health: HEALTHY,
  seq: 41,
  moves: 0,
  ...fields,
})

const failing = (hours: number, fields: Partial<LaneRecord> = {}) =>
  lane({
    health: { firstFailureAt: new Date(NOW.getTime() - hours * HOUR_MS), failedAttempts: 4, lastError: 'x', warnedAt: null },
    ...fields,
  }) // prettier-ignore

const result = (fields: Partial<AttemptResult> = {}): AttemptResult => ({
  ...{
    token: 't',
    webhookId: 'w',
    eventId: 'e',
    dueAt: NOW,
    place: 1,
    n: 1,
    epoch: 3,
    isTest: false,
    earlyAttempts: 0,
    isMessage: false,
  },
  ...{ startedAt: NOW, durationMs: 4.4, answer: null, retryAfterMs: undefined },
  ...{ ok: false, class: 'http_status', status: 500, error: 'HTTP status 500' },
  ...fields,
})

const success = (fields: Partial<AttemptResult> = {}) => result({ ok: true, class: 'ok', status: 204, error: null, ...fields }) // prettier-ignore

const apply = (on: LaneRecord, of: AttemptResult) => applyResult(on, of, NOW, rules)

test('each result gets the next number of its webhook, in the order in which they are applied', () => {
  const on = lane()
  const numbers = [success(), result(), success({ epoch: 1 }), success({ isTest: true })].map((of) => apply(on, of).seq)
  expect(numbers).toEqual([42, 43, 44, 45])
  expect(on.seq).toBe(45)
})

describe('a success', () => {
  test('ends the delivery, takes the message, and ends the failing', () => {
    const on = failing(13)
    expect(apply(on, success())).toMatchObject({ delivery: { status: 'delivered' }, copyEnd: 'taken', effects: [] })
    expect(on).toMatchObject({ state: 'active', health: HEALTHY })
  })

  test('of an epoch before, of a webhook that was deleted meanwhile, or of a test is delivered and judges nothing', () => {
    for (const [on, of] of [
      [failing(13), success({ epoch: 2 })],
      [failing(13, { state: 'deleted' }), success()],
      [failing(13), success({ isTest: true })],
    ] as const) {
      const { health } = on
      expect(apply(on, of).delivery).toEqual({ status: 'delivered' })
      expect(on.health).toEqual(health)
    }
  })
})

describe('a failure', () => {
  test('waits for its retry by the schedule, counted from now, and begins the failing at its own end', () => {
    const on = lane()
    const applied = apply(on, result())
    expect(applied).toMatchObject({ delivery: { retryAt: new Date(NOW.getTime() + 5000) }, copyEnd: undefined })
    expect(on.health).toMatchObject({ firstFailureAt: new Date(NOW.getTime() + 4), failedAttempts: 1 })
  })

  test('with no wait left in the schedule is exhausted, and hands a message back', () => {
    const applied = apply(lane(), result({ n: 3 }))
    expect(applied).toMatchObject({ delivery: { status: 'exhausted' }, copyEnd: 'returned' })
  })

  test('of a test was its only attempt, and judges nothing', () => {
    const on = lane()
    expect(apply(on, result({ isTest: true })).delivery).toEqual({ status: 'exhausted' })
    expect(on.health).toEqual(HEALTHY)
  })

  test('of an epoch before is discarded: a message of an auto-deleted one stays with it, that of a deleted one comes back', () => {
    expect(apply(lane(), result({ epoch: 2 }))).toMatchObject({ delivery: { status: 'discarded' }, copyEnd: 'lapsed' })
    expect(apply(lane({ state: 'auto_deleted' }), result())).toMatchObject({ copyEnd: 'lapsed' })
    expect(apply(lane({ state: 'deleted', epoch: 4 }), result())).toMatchObject({ delivery: { status: 'discarded' }, copyEnd: 'returned' }) // prettier-ignore
    // It was auto-deleted first.
    expect(apply(lane({ state: 'deleted', epoch: 5 }), result())).toMatchObject({ copyEnd: 'lapsed' })
  })

  test('`Retry-After` lengthens the wait, never beyond the time at which the webhook would be deleted', () => {
    const asks = result({ n: 2, retryAfterMs: 50_000 })
    expect(apply(lane(), asks).delivery).toMatchObject({ retryAt: new Date(NOW.getTime() + 50_000) })
    const late = failing(24 - 40 / 3600, { health: { ...failing(24 - 40 / 3600).health, warnedAt: NOW } })
    expect(apply(late, asks).delivery).toMatchObject({ retryAt: new Date(NOW.getTime() + 40_000) })
  })

  test('before its time, of a webhook that has recovered, brings one more after 40 s, and takes nothing from the schedule', () => {
    const schedule = { ...rules, retryScheduleSeconds: [5, 300, 1800, 7200] }
    const inSeconds = (seconds: number) => new Date(NOW.getTime() + seconds * 1000)
    const retryOf = (fields: Partial<AttemptResult>) => {
      const { delivery } = applyResult(lane(), result({ startedAt: NOW, dueAt: NOW, ...fields }), NOW, schedule)
      return 'retryAt' in delivery && [(delivery.retryAt.getTime() - NOW.getTime()) / 1000, delivery.earlyAttempts]
    }
    expect(retryOf({ n: 2 })).toEqual([300, 0])
    const hour = inSeconds(3600)
    expect(retryOf({ n: 3, dueAt: hour })).toEqual([40, 1])
    // The second of the pair: it waits as after the second attempt at its time, and the third one at its time follows.
    expect(retryOf({ n: 4, earlyAttempts: 1 })).toEqual([300, 2])
    expect(retryOf({ n: 5, earlyAttempts: 2 })).toEqual([1800, 2])
    expect(retryOf({ n: 6, earlyAttempts: 2, dueAt: hour })).toEqual([40, 3])
    expect(retryOf({ n: 7, earlyAttempts: 3 })).toEqual([1800, 4])
    // Four waits, then none: at its time only.
    expect(retryOf({ n: 8, earlyAttempts: 4 })).toEqual([7200, 4])
    expect(retryOf({ n: 9, earlyAttempts: 4 })).toBe(false)
    expect(retryOf({ n: 9, earlyAttempts: 4, dueAt: hour })).toEqual([40, 5])
    // Not later than its time, and as late as the endpoint asks; two clocks are no second apart.
    expect(retryOf({ n: 2, dueAt: inSeconds(20) })).toEqual([20, 1])
    expect(retryOf({ n: 3, dueAt: hour, retryAfterMs: 100_000 })).toEqual([100, 1])
    expect(retryOf({ n: 2, dueAt: inSeconds(0.9) })).toEqual([300, 0])
  })

  test('after 24 hours deletes the webhook: its epoch is a new one, and the later results of the batch judge nothing', () => {
    const on = failing(25, { health: { ...failing(25).health, warnedAt: new Date(NOW.getTime() - HOUR_MS) } })
    const first = apply(on, result())
    expect(first.effects.map(({ effect }) => effect)).toEqual(['auto_delete'])
    expect(first.delivery).toEqual({ status: 'discarded' })
    expect(on).toMatchObject({ state: 'auto_deleted', epoch: 4 })
    const { health } = on
    expect(apply(on, success()).effects).toEqual([])
    expect(on).toMatchObject({ state: 'auto_deleted', epoch: 4, health })
  })

  test('after 24 hours without a warning warns first, in the same batch', () => {
    const effects = apply(failing(25), result()).effects
    expect(effects.map(({ effect }) => effect)).toEqual(['warn', 'auto_delete'])
  })
})
