import { expect, test } from 'vitest'
import { LaneWindow } from '../../daemon/lane-window.ts'
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

test('a lane has two requests in flight at first, and as many as it may when they are answered quickly', () => {
  expect(mostInFlight(new LaneWindow(100), HEALTHY, OK, 0)).toBe(2)
  expect(mostInFlight(new LaneWindow(100), HEALTHY, OK, 1)).toBe(4)
  expect(mostInFlight(new LaneWindow(100), HEALTHY)).toBe(100)
  expect(mostInFlight(new LaneWindow(1), HEALTHY)).toBe(1)
})

test.each([
  ['a failure', { ok: false, durationMs: 5 }],
  ['a slow answer', { ok: true, durationMs: 1000 }],
])('after %s it has two', (_, outcome) => {
  expect(mostInFlight(new LaneWindow(100), HEALTHY, outcome as AttemptOutcome)).toBe(2)
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
