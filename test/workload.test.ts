import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { MOST_WAITING, Workload } from '../src/workload.ts'

let nowMs: number
let workload: Workload

beforeEach(() => {
  nowMs = 1000
  vi.spyOn(performance, 'now').mockImplementation(() => nowMs)
  workload = new Workload()
})
afterEach(() => vi.restoreAllMocks())

function begin(requests: number): void {
  for (let n = 0; n < requests; n++) workload.begin()
}

function end(requests: number): void {
  for (let n = 0; n < requests; n++) workload.end()
}

/** How many more are let in now. */
function room(): number {
  let count = 0
  for (; !workload.isFull; count++) workload.begin()
  end(count)
  return count
}

test('a burst of a thousand is taken whole', () => {
  expect(room()).toBe(MOST_WAITING)
  begin(1000)
  nowMs += 400
  expect(room()).toBe(MOST_WAITING - 1000)
})

test('what is more than can be answered, and lasts, has an eighth of it wait', () => {
  begin(300)
  nowMs += 1001
  expect(workload.isFull).toBe(true)
  end(172)
  expect(workload.isFull).toBe(true)
  end(1)
  expect(workload.isFull).toBe(false)
})

test('it is a burst again when most of it is answered', () => {
  begin(300)
  nowMs += 5000
  end(235)
  expect(room()).toBe(128 - 65)
  end(1)
  expect(room()).toBe(MOST_WAITING - 64)
})

test('who answers many lets as many wait as it answers soon', () => {
  begin(500)
  for (let n = 0; n < 2000; n++) {
    nowMs += 1
    end(2)
    begin(2)
  }
  expect(room()).toBe(0)
  end(301)
  expect(room()).toBe(1)
})
