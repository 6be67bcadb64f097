import { performance } from 'node:perf_hooks'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { Deadlines } from '../../daemon/deadlines.ts'

let nowMs = 1000

beforeEach(() => {
  vi.spyOn(performance, 'now').mockImplementation(() => nowMs)
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
})
afterEach(() => {
  vi.useRealTimers()
  vi.restoreAllMocks()
})

function pass(ms: number): void {
  for (let n = 0; n < ms; n++) {
    nowMs += 1
    vi.advanceTimersByTime(1)
  }
}

test('each expires once, at its own time and not before', () => {
  const expired: [string, number][] = []
  const deadlines = new Deadlines<string>(100, (owner) => expired.push([owner, nowMs]))
  const startedAtMs = nowMs
  deadlines.add('a', nowMs)
  pass(30)
  deadlines.add('b', nowMs)
  deadlines.add('c', nowMs)
  pass(500)
  expect(expired.map(([owner, atMs]) => [owner, atMs - startedAtMs])).toEqual([['a', 100], ['b', 130], ['c', 130]]) // prettier-ignore
})

test('one that was removed never expires, whichever of them it was, and may be removed again', () => {
  for (const gone of ['abc', 'a', 'b', 'c', 'ac', 'cb', 'ba']) {
    const expired: string[] = []
    const deadlines = new Deadlines<string>(100, (owner) => expired.push(owner))
    const added = new Map(['a', 'b', 'c'].map((owner) => [owner, deadlines.add(owner, nowMs)]))
    for (const owner of gone + gone) deadlines.remove(added.get(owner)!)
    deadlines.add('d', nowMs)
    pass(200)
    expect(expired.join('')).toBe('abcd'.replace(new RegExp(`[${gone}]`, 'g'), ''))
  }
})

test('what expires may add and remove others', () => {
  const expired: [string, number][] = []
  const deadlines = new Deadlines<string>(100, (owner) => {
    expired.push([owner, nowMs])
    if (owner === 'a') {
      deadlines.remove(b)
      deadlines.add('d', nowMs)
    }
  })
  const startedAtMs = nowMs
  deadlines.add('a', nowMs)
  const b = deadlines.add('b', nowMs)
  pass(50)
  deadlines.add('c', nowMs)
  pass(500)
  expect(expired.map(([owner, atMs]) => [owner, atMs - startedAtMs])).toEqual([['a', 100], ['c', 150], ['d', 200]]) // prettier-ignore
})

test('closed, nothing expires', () => {
  const deadlines = new Deadlines<string>(100, () => expect.fail())
  deadlines.add('a', nowMs)
  deadlines.close()
  pass(200)
})

test('one that was removed holds on to no other: among the old objects it would keep all that came after it', () => {
  const deadlines = new Deadlines<string>(10_000, () => {})
  const [first, second, third] = ['a', 'b', 'c'].map((owner) => deadlines.add(owner, nowMs))
  for (const removed of [second!, first!, third!]) {
    deadlines.remove(removed)
    expect([removed.previous, removed.next]).toEqual([undefined, undefined])
  }
  deadlines.close()
})

test('where the process stood still nothing expires before what has come meanwhile was looked at', async () => {
  const expired: string[] = []
  const deadlines = new Deadlines<string>(100, (owner) => expired.push(owner))
  const [came] = ['came', 'did not come'].map((owner) => deadlines.add(owner, nowMs))
  nowMs += 2000
  vi.advanceTimersByTime(100)
  expect(expired).toEqual([])
  // As a reading does in between.
  deadlines.remove(came!)
  await new Promise((resolve) => setImmediate(resolve))
  expect(expired).toEqual(['did not come'])
  deadlines.add('later', nowMs)
  pass(100)
  expect(expired).toEqual(['did not come', 'later'])
})
