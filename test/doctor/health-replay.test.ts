import { expect, test } from 'vitest'
import { replay, warningFault } from '../../scripts/doctor/health-check.ts'

const LIMITS = { warnAfterSeconds: 50, warnByClockSeconds: 40, deleteAfterSeconds: 60, minWarningLeadSeconds: 15 }
const FIRST_MS = Date.parse('2026-11-27T10:00:00Z')
const at = (seconds: number) => new Date(FIRST_MS + seconds * 1000)

const attempt = (seconds: number, ok = false) => ({ ok, error: 'HTTP status 500', endedAt: at(seconds) })
const replayed = (attempts: ReturnType<typeof attempt>[], warnedAt: Date | null) =>
  replay(attempts, { limits: LIMITS }, warnedAt)

const deletedBy = (failedAttempts: number, warnedAt: Date) => ({
  firstFailureAt: at(0),
  failedAttempts,
  lastError: 'HTTP status 500',
  warnedAt,
})

test('what was under way when an attempt brought the deletion judges nothing, also behind a warning by the clock', () => {
  // No attempt was to warn before it: by the attempts alone the one at 62 s would only warn.
  const late = [attempt(0), attempt(62), attempt(63), attempt(64, true)]
  expect(replayed(late, at(40))).toEqual(deletedBy(2, at(40)))
  // Warned by an attempt.
  const warned = [attempt(0), attempt(50), attempt(66), attempt(67), attempt(68, true)]
  expect(replayed(warned, at(50))).toEqual(deletedBy(3, at(50)))
})

test('a warning counts from its own time on: too late for an attempt, it brings no deletion', () => {
  expect(replayed([attempt(0), attempt(49), attempt(61), attempt(62)], at(48)).failedAttempts).toBe(4)
  expect(replayed([attempt(0), attempt(49), attempt(61), attempt(63), attempt(64)], at(48)).failedAttempts).toBe(4)
})

test('without a warning the attempts bring it themselves', () => {
  expect(replayed([attempt(0), attempt(62), attempt(70)], null)).toEqual(deletedBy(3, at(62)))
  expect(replayed([attempt(0), attempt(62), attempt(70, true)], null).firstFailureAt).toBeNull()
})

test('the clock may warn between the time of an attempt and its record, and no later', () => {
  const limits = { ...LIMITS, warnAfterSeconds: 20 }
  const faultOf = (attemptAt: number, warnedAt: number | null) => {
    const byAttempts = replay([attempt(0), attempt(attemptAt)], { limits })
    return warningFault({ ...byAttempts, warnedAt: warnedAt === null ? null : at(warnedAt) }, byAttempts, { limits })
  }
  expect(faultOf(39.9, 39.9)).toBeUndefined()
  expect(faultOf(39.9, 40.1)).toBeUndefined()
  // Before the clock may; long after; never.
  expect(faultOf(30, 30.2)).toMatch(/its attempts bring the warning/)
  expect(faultOf(30, 41)).toMatch(/its attempts bring the warning/)
  expect(faultOf(39.9, null)).toMatch(/its attempts bring the warning/)
})
