import { afterEach, expect, test } from 'vitest'
import { DatabaseClock, processClock, type ClockName } from '../src/clock.ts'

const HOUR_MS = 3_600_000
const patient = { timeout: 20_000, interval: 20 }

const clock = new DatabaseClock()
afterEach(() => clock.stop())

test('a jump of the database’s clock is followed and said once, forwards and back; without an answer it goes on', async () => {
  let offsetMs = 0
  let reads = 0
  let fails = false
  const jumps: [number, ClockName][] = []
  const read = async () => {
    reads += 1
    if (fails) throw new Error('the database does not answer')
    return processClock.nowMs() + offsetMs
  }
  await clock.follow(read, (jumpMs, from) => jumps.push([Math.round(jumpMs / HOUR_MS), from]))
  const ahead = () => Math.round((clock.nowMs() - processClock.nowMs()) / HOUR_MS)
  /** Whatever a reading says is heard by the next one. */
  const readTwice = async () => {
    const seen = reads
    await expect.poll(() => reads, patient).toBeGreaterThan(seen + 1)
  }
  expect(Math.abs(ahead())).toBe(0)
  offsetMs = 25 * HOUR_MS
  await expect.poll(() => jumps, patient).toEqual([[25, 'database']])
  await readTwice()
  expect(ahead()).toBe(25)
  offsetMs = 22 * HOUR_MS
  await expect.poll(() => jumps.length, patient).toBe(2)
  fails = true
  await readTwice()
  expect(ahead()).toBe(22)
  expect(jumps).toEqual([
    [25, 'database'],
    [-3, 'database'],
  ])
})

test('a first answer that is slow counts: the process’s own clock may be off by more', async () => {
  const read = async () => {
    const readAtMs = processClock.nowMs() + 25 * HOUR_MS
    await new Promise((resolve) => setTimeout(resolve, 1100))
    return readAtMs
  }
  await clock.follow(read, () => {})
  expect(Math.abs(clock.nowMs() - processClock.nowMs() - 25 * HOUR_MS)).toBeLessThan(2000)
})
