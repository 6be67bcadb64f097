import { expect, test } from 'vitest'
import { LaneWindow, windowOf } from '../../daemon/lane-window.ts'
import type { AttemptOutcome } from '../../daemon/webhook-client.ts'
import type { PendingDelivery } from '../../src/deliveries/delivery-queue-repository.ts'

const HEALTHY = { failing: false, recovering: false }
const OK = { ok: true, durationMs: 5 } as AttemptOutcome

/** How many requests it lets be in flight, once so many have been answered so. */
function mostInFlight(window: LaneWindow, state: typeof HEALTHY, outcome = OK, answered = 10): number {
  for (let n = 0; n < answered; n++) window.ended(window.start({} as PendingDelivery, new Date()), outcome)
  let size = 0
  for (; !window.isFull(state); size++) window.start({} as PendingDelivery, new Date())
  return size
}

test('a lane has two requests in flight at first, and as many as it may when they are answered', () => {
  expect(mostInFlight(new LaneWindow(100), HEALTHY, OK, 0)).toBe(2)
  expect(mostInFlight(new LaneWindow(100), HEALTHY, OK, 1)).toBe(4)
  expect(mostInFlight(new LaneWindow(100), HEALTHY)).toBe(100)
  expect(mostInFlight(new LaneWindow(1), HEALTHY)).toBe(1)
})

test('after the death of a daemon it has at first as many as that one may have had', () => {
  const window = new LaneWindow(100, 100)
  expect(mostInFlight(window, { failing: true, recovering: false }, OK, 0)).toBe(2)
  expect(mostInFlight(new LaneWindow(100, 100), HEALTHY, OK, 0)).toBe(100)
})

test('after a failure it has two', () => {
  const window = new LaneWindow(100)
  for (const ok of [true, true, true, false]) {
    window.ended(window.start({} as PendingDelivery, new Date()), { ...OK, ok })
  }
  expect(mostInFlight(window, HEALTHY, OK, 0)).toBe(2)
})

test('one that answers slowly has as many as another, and is a slow one until it answers sooner', () => {
  const slow = { ok: true, durationMs: 1000 } as AttemptOutcome
  const window = new LaneWindow(100)
  expect(window.isSlow).toBe(false)
  expect(mostInFlight(window, HEALTHY, slow)).toBe(100)
  expect(window.isSlow).toBe(true)
  mostInFlight(window, HEALTHY, OK, 1)
  expect(window.isSlow).toBe(false)
})

test('a later run of a lane whose last answer was slow begins as a slow one, until it answers sooner; other lanes do not', () => {
  const deps = { maxInFlight: 10, afterDeath: () => false, slow: new Set<string>() }
  const slow = { ok: true, durationMs: 1000 } as AttemptOutcome
  mostInFlight(windowOf(deps, 'slow'), HEALTHY, slow, 1)
  const later = windowOf(deps, 'slow')
  expect([later.isSlow, windowOf(deps, 'other').isSlow]).toEqual([true, false])
  mostInFlight(later, HEALTHY, OK, 1)
  expect([windowOf(deps, 'slow').isSlow, deps.slow.size]).toEqual([false, 0])
})

test.each([
  [100, 2, 10],
  [10, 2, 10],
  [4, 2, 4],
  [1, 1, 1],
])(
  'of %d that it may have it has %d while its webhook fails, and %d while that recovers',
  (most, failing, recovering) => {
    expect(mostInFlight(new LaneWindow(most), { failing: true, recovering: false })).toBe(failing)
    expect(mostInFlight(new LaneWindow(most), { failing: false, recovering: true })).toBe(recovering)
  },
)
