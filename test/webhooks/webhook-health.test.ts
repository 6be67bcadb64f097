import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  HEALTHY,
  judgeAttempt,
  judgeClock,
  type HealthLimits,
  type WebhookHealth,
} from '../../src/webhooks/webhook-health.ts'

const LIMITS: HealthLimits = {
  warnAfterSeconds: 43_200,
  warnByClockSeconds: 82_800,
  deleteAfterSeconds: 86_400,
  minWarningLeadSeconds: 0,
}
const START_MS = Date.UTC(2026, 10, 20)
const HOUR = 3600
const at = (seconds: number) => new Date(START_MS + seconds * 1000)
const fail = (health: WebhookHealth, seconds: number, error = 'HTTP status 500', limits = LIMITS) =>
  judgeAttempt(health, { ok: false, error }, at(seconds), limits)
const succeed = (health: WebhookHealth, seconds: number) => judgeAttempt(health, { ok: true }, at(seconds), LIMITS)
const failingSince = (seconds: number) => fail(HEALTHY, seconds).health

describe('a failed attempt', () => {
  test('notes its time when it is the first; later ones do not move it', () => {
    const { health } = fail(fail(failingSince(10), 20).health, 30)
    expect(health).toEqual({ firstFailureAt: at(10), failedAttempts: 3, lastError: 'HTTP status 500', warnedAt: null })
  })

  test('leaves the latest error', () => {
    expect(fail(failingSince(10), 20, 'the connection was refused').health.lastError).toBe('the connection was refused')
  })

  test.each([
    ['11:59:59.999', 12 * HOUR - 0.001, []],
    ['12:00', 12 * HOUR, ['warn']],
    ['23:59:59.999', 24 * HOUR - 0.001, ['warn']],
    ['24:00 with no warning before', 24 * HOUR, ['warn', 'auto_delete']],
    ['30:00 with no warning before', 30 * HOUR, ['warn', 'auto_delete']],
  ])('at %s brings %s', (_name, seconds, effects) => {
    expect(fail(failingSince(0), seconds as number).effects).toEqual(effects)
  })

  test('warns once in a failing period', () => {
    const warned = fail(failingSince(0), 12 * HOUR)
    expect(fail(warned.health, 13 * HOUR).effects).toEqual([])
    expect(fail(warned.health, 24 * HOUR).effects).toEqual(['auto_delete'])
  })

  test('after a warning by the clock brings no second one', () => {
    const warned = judgeClock(failingSince(0), at(23 * HOUR), LIMITS).health
    expect(fail(warned, 23.5 * HOUR).effects).toEqual([])
    expect(fail(warned, 24 * HOUR).effects).toEqual(['auto_delete'])
  })

  test('that is the first never warns or deletes', () => {
    expect(fail(HEALTHY, 40 * HOUR).effects).toEqual([])
  })
})

test('times that a clock which was set back has left ahead count as now; one that overlapped may have ended a minute later', () => {
  const failing = (firstFailure: number, warned?: number): WebhookHealth => ({
    ...{ firstFailureAt: at(firstFailure), failedAttempts: 4, lastError: 'x' },
    warnedAt: warned === undefined ? null : at(warned),
  })
  expect(fail(failing(60), 0).health.firstFailureAt).toEqual(at(60))
  expect(fail(failing(61), 0).health.firstFailureAt).toEqual(at(0))
  // From then on as ever.
  expect(fail(fail(failing(25 * HOUR), 0).health, 24 * HOUR).effects).toEqual(['warn', 'auto_delete'])
  const limits = { ...LIMITS, minWarningLeadSeconds: HOUR }
  const warned = fail(failing(-24 * HOUR, 100 * HOUR), 0, 'x', limits)
  expect([warned.health.warnedAt, warned.effects]).toEqual([at(0), []])
  expect(fail(warned.health, HOUR, 'x', limits).effects).toEqual(['auto_delete'])
})

describe('a 2xx', () => {
  test('clears everything', () => {
    const warned = fail(failingSince(0), 13 * HOUR).health
    expect(succeed(warned, 14 * HOUR)).toEqual({ health: HEALTHY, effects: [] })
  })

  test('starts the period anew with the next failure, and so does the warning', () => {
    const cleared = succeed(fail(failingSince(0), 13 * HOUR).health, 14 * HOUR).health
    const again = fail(cleared, 15 * HOUR).health
    expect(again).toEqual({
      firstFailureAt: at(15 * HOUR),
      failedAttempts: 1,
      lastError: 'HTTP status 500',
      warnedAt: null,
    })
    expect(fail(again, 26 * HOUR).effects).toEqual([])
    expect(fail(again, 27 * HOUR).effects).toEqual(['warn'])
  })
})

describe('the clock', () => {
  test.each([
    ['22:59:59.999', 23 * HOUR - 0.001, []],
    ['23:00', 23 * HOUR, ['warn']],
    ['48:00', 48 * HOUR, ['warn']],
  ])('at %s brings %s, never a deletion', (_name, seconds, effects) => {
    expect(judgeClock(failingSince(0), at(seconds as number), LIMITS).effects).toEqual(effects)
  })

  test('does not warn twice, nor a healthy webhook', () => {
    expect(judgeClock(HEALTHY, at(100 * HOUR), LIMITS).effects).toEqual([])
    expect(judgeClock(fail(failingSince(0), 12 * HOUR).health, at(23 * HOUR), LIMITS).effects).toEqual([])
  })
})

test('a warning by the clock that comes between the end of an attempt at 24 h and its record holds no deletion back', () => {
  const warned = judgeClock(failingSince(0), at(25 * HOUR + 0.005), LIMITS).health
  expect(fail(warned, 25 * HOUR).effects).toEqual(['auto_delete'])
})

describe('with a least time between warning and deletion', () => {
  const limits = { ...LIMITS, minWarningLeadSeconds: 1 * HOUR }

  test('a failed attempt at 24 h without a warning only warns, and a later one deletes', () => {
    const warned = fail(failingSince(0), 24 * HOUR, 'x', limits)
    expect(warned.effects).toEqual(['warn'])
    expect(fail(warned.health, 25 * HOUR - 0.001, 'x', limits).effects).toEqual([])
    expect(fail(warned.health, 25 * HOUR, 'x', limits).effects).toEqual(['auto_delete'])
  })

  test('a warning that was recorded after the attempt had ended is no earlier one', () => {
    const warned = judgeClock(failingSince(0), at(25 * HOUR + 0.005), limits).health
    expect(fail(warned, 25 * HOUR, 'x', limits).effects).toEqual([])
  })
})

/**
 * The specification's table read once more, as a search over the whole history instead of a step from state to state:
 * written without looking at the code.
 */
interface Step {
  kind: 'success' | 'failure' | 'clock'
  atSeconds: number
}

function oracle(history: Step[]): { warnings: number; deletedAt: number | undefined; failedAttempts: number } {
  let warnings = 0
  for (const [index, step] of history.entries()) {
    const past = history.slice(0, index + 1)
    const lastSuccess = past.findLastIndex((other) => other.kind === 'success')
    const failures = past.slice(lastSuccess + 1).filter((other) => other.kind === 'failure')
    if (failures.length === 0 || step.kind === 'success') continue
    const hours = (step.atSeconds - failures[0]!.atSeconds) / HOUR
    const warnedBefore = history.slice(lastSuccess + 1, index).some((other, offset) => {
      const before = history.slice(lastSuccess + 1, lastSuccess + 2 + offset).filter(({ kind }) => kind === 'failure')
      if (before.length === 0) return false
      const otherHours = (other.atSeconds - before[0]!.atSeconds) / HOUR
      return other.kind === 'failure' ? otherHours >= 12 : otherHours >= 23
    })
    if (!warnedBefore && (step.kind === 'failure' ? hours >= 12 : hours >= 23)) warnings += 1
    if (step.kind === 'failure' && hours >= 24)
      return { warnings, deletedAt: step.atSeconds, failedAttempts: failures.length }
  }
  const lastSuccess = history.findLastIndex(({ kind }) => kind === 'success')
  const failedAttempts = history.slice(lastSuccess + 1).filter(({ kind }) => kind === 'failure').length
  return { warnings, deletedAt: undefined, failedAttempts }
}

function run(history: Step[]): ReturnType<typeof oracle> {
  let health = HEALTHY
  let warnings = 0
  for (const { kind, atSeconds } of history) {
    const judged =
      kind === 'clock'
        ? judgeClock(health, at(atSeconds), LIMITS)
        : judgeAttempt(health, kind === 'success' ? { ok: true } : { ok: false, error: 'x' }, at(atSeconds), LIMITS)
    health = judged.health
    if (judged.effects.includes('warn')) warnings += 1
    if (judged.effects.includes('auto_delete'))
      return { warnings, deletedAt: atSeconds, failedAttempts: health.failedAttempts }
  }
  return { warnings, deletedAt: undefined, failedAttempts: health.failedAttempts }
}

/** `make histories` has more of them, and longer ones. MODEL_SEED=n repeats a run. */
const RUNS = Number(process.env.RULES_RUNS ?? 20_000)
const STEPS = Number(process.env.RULES_STEPS ?? 40)
const SEED = Number(process.env.MODEL_SEED ?? Math.floor(Math.random() * 2 ** 31))

const NAME = `${RUNS} random histories of up to ${STEPS} steps end as the specification’s table says`
test(NAME, { timeout: 30_000 + RUNS * 10 }, () => {
  const seen = { warnings: 0, deletions: 0 }
  const step = fc.record({
    kind: fc.oneof(
      { weight: 1, arbitrary: fc.constant('success' as const) },
      { weight: 6, arbitrary: fc.constant('failure' as const) },
      { weight: 3, arbitrary: fc.constant('clock' as const) },
    ),
    gapSeconds: fc.oneof(
      fc.integer({ min: 0, max: 4 * HOUR }),
      fc.constantFrom(
        0,
        1,
        HOUR,
        6 * HOUR,
        11 * HOUR,
        12 * HOUR - 1,
        12 * HOUR,
        23 * HOUR - 1,
        23 * HOUR,
        24 * HOUR - 1,
        24 * HOUR,
      ),
    ),
  })
  fc.assert(
    fc.property(fc.array(step, { maxLength: STEPS, size: 'max' }), (steps) => {
      let atSeconds = 0
      const history = steps.map(({ kind, gapSeconds }) => ({ kind, atSeconds: (atSeconds += gapSeconds) }))
      const [found, meant] = [run(history), oracle(history)]
      seen.warnings += meant.warnings
      seen.deletions += Number(meant.deletedAt !== undefined)
      expect(found).toEqual(meant)
    }),
    { numRuns: RUNS, seed: SEED },
  )
  console.log(`rules: histories=${RUNS} MODEL_SEED=${SEED} ${JSON.stringify(seen)} counterexamples=0`)
})
