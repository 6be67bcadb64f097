import { describe, expect, test } from 'vitest'
import {
  progressOf,
  recoveryStart,
  requireRedeliverable,
  type Recovery,
  type Redelivery,
} from '../../src/deliveries/recovery-rules.ts'
import { firstIdOf } from '../../src/ids.ts'

const NOW = new Date('2026-11-20T10:00:00.000Z')

test('a recovery begins at an existing time, at most 14 days ago to the millisecond, and not in the future', () => {
  for (const since of ['2026-11-06T10:00:00.000Z', '2026-11-20T10:00:00.000Z']) {
    expect(recoveryStart(since, NOW)).toEqual(new Date(since))
  }
  expect(() => recoveryStart('2026-11-06T09:59:59.999Z', NOW)).toThrow('more than 14 days ago')
  expect(() => recoveryStart('2026-11-20T10:00:00.001Z', NOW)).toThrow('in the future')
  expect(() => recoveryStart('yesterday', NOW)).toThrow('since is no time')
})

describe('progress', () => {
  const idAt = (hour: number) => firstIdOf(NOW.getTime() + hour * 3_600_000)
  const recovery = (fields: Partial<Recovery>) =>
    ({ state: 'running', fromId: idAt(0), untilId: idAt(10), deliveryPosition: null, ...fields }) as Recovery

  test('is how far in the events’ time it has looked, 100 only when it has ended', () => {
    expect(progressOf(recovery({}))).toBe(0)
    expect(progressOf(recovery({ deliveryPosition: idAt(5) }))).toBe(50)
    expect(progressOf(recovery({ deliveryPosition: idAt(10) }))).toBe(99)
    expect(progressOf(recovery({ state: 'completed' }))).toBe(100)
  })

  test('stays between 0 and 99 where there is no time to look at, or the position lies outside', () => {
    expect(progressOf(recovery({ untilId: idAt(0), deliveryPosition: idAt(0) }))).toBe(99)
    expect(progressOf(recovery({ deliveryPosition: idAt(-1) }))).toBe(0)
    expect(progressOf(recovery({ deliveryPosition: idAt(11) }))).toBe(99)
  })
})

describe('sending again', () => {
  const delivery = (fields: Partial<Redelivery> = {}): Redelivery => ({
    ...{ webhookState: 'active', epoch: 2, queued: undefined, messageState: undefined, bodyIsKept: true },
    ...fields,
  })

  test('is open to what has ended, has its body, and is no message that has gone out', () => {
    for (const messageState of [undefined, 'offered', 'expired']) {
      expect(() => requireRedeliverable(delivery({ messageState }), false)).not.toThrow()
    }
  })

  test.each([
    [{ webhookState: 'auto_deleted' }, 'reactivate it first'],
    [{ webhookState: 'deleted' }, 'which is final'],
    [{ queued: { epoch: 2, dueAt: NOW } }, 'due at 2026-11-20T10:00:00.000Z'],
    [{ queued: { epoch: 1, dueAt: NOW } }, 'is being discarded'],
    [{ bodyIsKept: false }, 'not kept any more'],
    [{ messageState: 'taken' }, 'a webhook has taken the message'],
    [{ messageState: 'normal' }, 'sent the normal way'],
  ])('is refused for %o', (fields, why) => {
    expect(() => requireRedeliverable(delivery(fields), false)).toThrow(why)
  })

  test('a message that has gone out goes a second time where that is asked for', () => {
    for (const messageState of ['taken', 'normal']) {
      expect(() => requireRedeliverable(delivery({ messageState }), true)).not.toThrow()
    }
  })
})
