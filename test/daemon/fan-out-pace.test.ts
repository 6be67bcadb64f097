import { expect, test } from 'vitest'
import { allowsTwo, FanOutPace, FULL_FAN_OUT } from '../../daemon/fan-out-pace.ts'

const ids = (count: number) => Array.from({ length: count }, (_, n) => String(n).padStart(4, '0'))

/** Fan-outs of what waits, of which a batch with one of the bad events fails, until all others are routed. */
function routeAll(pace: FanOutPace, waiting: string[], isBad: (batch: string[]) => boolean) {
  const [routed, aside]: [string[], string[]] = [[], []]
  let [fanOuts, largest] = [0, 0]
  while (waiting.length > aside.length && fanOuts < 1000) {
    const { limit, exceptIds } = pace.next(0)
    const batch = waiting.filter((id) => !exceptIds.includes(id)).slice(0, limit)
    fanOuts += 1
    if (isBad(batch)) {
      const alone = pace.failed(batch, 0)
      if (alone !== undefined) aside.push(alone)
      continue
    }
    largest = Math.max(largest, batch.length)
    pace.succeeded(10)
    routed.push(...batch)
    waiting = waiting.filter((id) => !batch.includes(id))
  }
  return { routed, aside, fanOuts, largest }
}

test('an event that fails is found and stepped over, and all others go', () => {
  const waiting = ids(2000)
  const bad = [waiting[0]!, waiting[700]!]
  const pace = new FanOutPace()
  const { routed, aside, fanOuts } = routeAll(pace, waiting, (batch) => bad.some((id) => batch.includes(id)))
  expect(aside).toEqual(bad)
  expect(routed).toEqual(waiting.filter((id) => !bad.includes(id)))
  expect(fanOuts).toBeLessThan(60)
  expect(pace.hasAside).toBe(true)
})

test('a batch that is too large is halved until it is not, and nothing is stepped over', () => {
  const { routed, aside, largest } = routeAll(new FanOutPace(), ids(300), (batch) => batch.length > 60)
  expect([routed, aside]).toEqual([ids(300), []])
  expect(largest).toBeGreaterThan(30)
})

test('the full size comes back with each success, but not while they are slow', () => {
  const pace = new FanOutPace()
  pace.failed(ids(8), 0)
  expect(pace.next(0).limit).toBe(4)
  pace.succeeded(2500)
  expect(pace.next(0).limit).toBe(4)
  for (let n = 0; n < 20; n++) pace.succeeded(1999)
  expect(pace.next(0).limit).toBe(FULL_FAN_OUT)
})

test('two go at once only after a full one that was quick', () => {
  expect(allowsTwo(FULL_FAN_OUT, 999)).toBe(true)
  expect(allowsTwo(FULL_FAN_OUT - 1, 1)).toBe(false)
  expect(allowsTwo(FULL_FAN_OUT, 1000)).toBe(false)
})

test('an event that was stepped over is tried again after a minute, alone if it is the first', () => {
  const pace = new FanOutPace()
  pace.failed(['a'], 0)
  for (let n = 0; n < 20; n++) pace.succeeded(1)
  expect(pace.next(59_999)).toEqual({ limit: FULL_FAN_OUT, exceptIds: ['a'] })
  expect(pace.next(60_000)).toEqual({ limit: 1, exceptIds: [] })
  expect(pace.hasAside).toBe(false)
})

test('so many are stepped over and no more, and what fails without end has to wait', () => {
  const pace = new FanOutPace()
  for (const [n, id] of ids(600).entries()) {
    expect(pace.isHopeful).toBe(n < 10)
    pace.failed([id], 0)
  }
  expect(pace.next(0).exceptIds).toEqual(ids(600).slice(100))
  pace.succeeded(1)
  expect(pace.isHopeful).toBe(true)
})

test('an event that was alone when a connection ended is stepped over only if it happens with it again', () => {
  const pace = new FanOutPace()
  expect(pace.failed(['a'], 0, true)).toBeUndefined()
  expect(pace.next(0)).toEqual({ limit: 1, exceptIds: [] })
  expect(pace.failed(['a'], 0, true)).toBe('a')
  expect(pace.failed(['b'], 0, true)).toBeUndefined()
  pace.succeeded(1)
  expect(pace.failed(['b'], 0, true)).toBeUndefined()
})
