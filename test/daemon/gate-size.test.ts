import { expect, test } from 'vitest'
import { gateSizeAfter, GateSizer, WAITING_SIZE } from '../../daemon/gate-size.ts'

test('a daemon that is busy itself has fewer requests in flight and longer turns, until it waits again', () => {
  let size = WAITING_SIZE
  const sizes = [0.1, 0.6, 0.8, 1, 0.6, 0.5, 0.4, 0.6].map((utilization) => (size = gateSizeAfter(size, utilization)))
  expect(sizes.map(({ limit }) => limit)).toEqual([128, 128, 64, 64, 64, 64, 128, 128])
  expect(sizes.map(({ turn }) => turn)).toEqual([20, 20, 200, 200, 200, 200, 20, 20])
})

test('how busy it is, it sees by itself', async () => {
  const sizer = new GateSizer()
  const until = performance.now() + 200
  while (performance.now() < until);
  expect(sizer.look()).toEqual({ limit: 64, turn: 200 })
  await expect.poll(() => sizer.look(), { interval: 200, timeout: 5000 }).toEqual(WAITING_SIZE)
})
