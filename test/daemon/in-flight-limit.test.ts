import { expect, test } from 'vitest'
import { inFlightLimit, MOST_IN_FLIGHT } from '../../daemon/in-flight-limit.ts'

test('a daemon that is busy itself has fewer requests in flight, until it waits again', () => {
  let limit = MOST_IN_FLIGHT
  const limits = [0.1, 0.6, 0.8, 1, 0.6, 0.5, 0.4, 0.6].map(
    (utilization) => (limit = inFlightLimit(limit, utilization)),
  )
  expect(limits).toEqual([128, 128, 64, 64, 64, 64, 128, 128])
})
