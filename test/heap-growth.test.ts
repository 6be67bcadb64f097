import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { expect, test, vi } from 'vitest'
import { boundHeapGrowth, type HeapGrowthOptions } from '../src/heap-growth.ts'

const MB = 1024 * 1024

const growth = { busy: 0, tight: 60 }
const collect = () => {}

/** @returns what is said while the process is watched, half a second each */
function watched(options: Partial<HeapGrowthOptions>, change: (n: number) => void, times: number): number[] {
  vi.useFakeTimers()
  const said: number[] = []
  let nowMs = 0
  const end = boundHeapGrowth({ growth, nowMs: () => nowMs, setGrowth: (percent) => said.push(percent), ...options })
  for (let n = 0; n < times; n++) {
    change(n)
    nowMs += 500
    vi.advanceTimersByTime(500)
  }
  end()
  const before = said.length
  change(0)
  vi.advanceTimersByTime(5000)
  expect(said.length).toBe(before)
  vi.useRealTimers()
  return said
}

test('a busy process is large from its limit on, small again well below it, and said to be so once each', () => {
  const sizes = [199, 200, 300, 199, 161, 159, 199].flatMap((size) => [size, size])
  let residentMb = 100
  let cpuMs = 0
  const options = { largeFromMb: 200, residentBytes: () => residentMb * MB, cpuMs: () => (cpuMs += 500), collect }
  expect(watched(options, (n) => (residentMb = sizes[n]!), sizes.length)).toEqual([60, 0])
})

test('one that becomes large is looked through at once, under the new limit', () => {
  const sizes = [100, 199, 200, 300, 199, 150, 210]
  const order: (number | string)[] = []
  let residentMb = 100
  let cpuMs = 0
  const options = {
    ...{ largeFromMb: 200, residentBytes: () => residentMb * MB, cpuMs: () => (cpuMs += 500) },
    ...{ setGrowth: (percent: number) => order.push(percent), collect: () => order.push('collected') },
  }
  watched(options, (n) => (residentMb = sizes[n]!), sizes.length)
  expect(order).toEqual([60, 'collected', 0, 60, 'collected'])
})

test('so is one that had little to do while it became large, whose limit is from when it was busy', () => {
  const order: (number | string)[] = []
  let residentMb = 100
  let cpuMs = 0
  const options = {
    ...{ largeFromMb: 200, residentBytes: () => residentMb * MB, cpuMs: () => cpuMs },
    ...{ setGrowth: (percent: number) => order.push(percent), collect: () => order.push('collected') },
  }
  watched(options, (n) => ((residentMb = n < 3 ? 199 : 201), (cpuMs += n === 1 ? 0 : 500)), 5)
  expect(order).toEqual([60, 0, 60, 'collected'])
  order.length = 0
  watched(options, (n) => ((residentMb = n < 3 ? 199 : 201), (cpuMs += n < 4 ? 0 : 500)), 5)
  expect(order).toEqual([60, 'collected'])
})

test('a process that has little to do is held tight whatever its size, and not any more when it is busy', () => {
  let cpuMs = 0
  const shares = [1, 0.2, 0.2, 0.4, 1, 0.2, 0]
  expect(watched({ cpuMs: () => cpuMs }, (n) => (cpuMs += 500 * shares[n]!), shares.length)).toEqual([60, 0, 60])
})

/** @returns how often a process that makes much, and keeps little of it for a while, looks through all of its heap */
function looksOf(largeFromMb: number): number {
  const script = `
    import { constants, PerformanceObserver } from 'node:perf_hooks'
    import { boundHeapGrowth } from ${JSON.stringify(join(import.meta.dirname, '../src/heap-growth.ts'))}
    // Busy all the time.
    boundHeapGrowth({ largeFromMb: ${largeFromMb}, growth: { busy: 0, tight: 60 }, cpuMs: () => performance.now() })
    let looks = 0
    const count = (list) => {
      for (const { detail } of list.getEntries()) if (detail.kind === constants.NODE_PERFORMANCE_GC_MAJOR) looks += 1
    }
    // For so long that all of it becomes old: what dies young is never looked for.
    const kept = []
    const make = () => {
      for (let n = 0; n < 2000; n++) kept.push(Array.from({ length: 60 }, (_, i) => ({ i, n })))
      kept.splice(0, Math.max(0, kept.length - 32000))
    }
    for (let round = 0; round < 16; round++) make()
    // Its size has been looked at, and the next limit is set with what is kept.
    await new Promise((resolve) => setTimeout(resolve, 1000))
    gc()
    await new Promise((resolve) => setTimeout(resolve, 100))
    new PerformanceObserver(count).observe({ entryTypes: ['gc'] })
    for (let round = 0; round < 60; round++) {
      make()
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
    console.log(looks)`
  const ended = spawnSync(process.execPath, ['--expose-gc', '--input-type=module', '--eval', script], {
    encoding: 'utf8',
  })
  expect(ended.stderr).toBe('')
  return Number(ended.stdout)
}

test('a process that counts as large looks through its heap more often for the same work', { timeout: 60_000 }, () => {
  const [large, small] = [looksOf(1), looksOf(100_000)]
  expect(large).toBeGreaterThan(small)
})

test('becoming large frees what was left lying', { timeout: 60_000 }, () => {
  const script = `
    import { boundHeapGrowth } from ${JSON.stringify(join(import.meta.dirname, '../src/heap-growth.ts'))}
    let left = Array.from({ length: 200_000 }, (_, n) => ({ n }))
    gc()
    left = undefined
    const before = process.memoryUsage().heapUsed
    boundHeapGrowth({ largeFromMb: 1, growth: { busy: 0, tight: 60 }, cpuMs: () => performance.now() })
    await new Promise((resolve) => setTimeout(resolve, 1000))
    console.log(before - process.memoryUsage().heapUsed)`
  const { stdout, stderr } = spawnSync(process.execPath, ['--expose-gc', '--input-type=module', '--eval', script], {
    encoding: 'utf8',
  })
  expect(stderr).toBe('')
  expect(Number(stdout)).toBeGreaterThan(4 * MB)
})
