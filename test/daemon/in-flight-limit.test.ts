import { expect, test } from 'vitest'
import { inFlightLimit, InFlightLimit, MOST_IN_FLIGHT } from '../../daemon/in-flight-limit.ts'

test('a daemon that is busy itself has fewer requests in flight, until it waits again', () => {
  let limit = MOST_IN_FLIGHT
  const limits = [0.1, 0.6, 0.8, 1, 0.6, 0.5, 0.4, 0.6].map(
    (utilization) => (limit = inFlightLimit(limit, utilization)),
  )
  expect(limits).toEqual([128, 128, 64, 64, 64, 64, 128, 128])
})

test('how busy it is, it sees by itself', async () => {
  const limit = new InFlightLimit()
  const until = performance.now() + 200
  while (performance.now() < until);
  expect(limit.look()).toBe(64)
  await expect.poll(() => limit.look(), { interval: 200, timeout: 5000 }).toBe(128)
})
