import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { expect, test, vi } from 'vitest'
import { boundHeapGrowth } from '../src/heap-growth.ts'

const MB = 1024 * 1024

test('a process is large from its limit on, small again well below it, and said to be so once each', () => {
  vi.useFakeTimers()
  const said: number[] = []
  let residentMb = 100
  const end = boundHeapGrowth({
    largeFromMb: 200,
    residentBytes: () => residentMb * MB,
    setGrowth: (percent) => said.push(percent),
  })
  for (const size of [199, 200, 300, 199, 161, 159, 199]) {
    residentMb = size
    vi.advanceTimersByTime(500)
    vi.advanceTimersByTime(500)
  }
  expect(said).toEqual([60, 0])
  end()
  residentMb = 1000
  vi.advanceTimersByTime(5000)
  expect(said).toEqual([60, 0])
  vi.useRealTimers()
})

/** @returns how often a process that makes much, and keeps little of it for a while, looks through all of its heap */
function looksOf(largeFromMb: number): number {
  const script = `
    import { constants, PerformanceObserver } from 'node:perf_hooks'
    import { boundHeapGrowth } from ${JSON.stringify(join(import.meta.dirname, '../src/heap-growth.ts'))}
    boundHeapGrowth({ largeFromMb: ${largeFromMb} })
    let looks = 0
    const count = (list) => {
      for (const { detail } of list.getEntries()) if (detail.kind === constants.NODE_PERFORMANCE_GC_MAJOR) looks += 1
    }
    const kept = []
    const make = () => {
      for (let n = 0; n < 2000; n++) kept.push(Array.from({ length: 100 }, (_, i) => ({ i, n })))
      kept.splice(0, Math.max(0, kept.length - 8000))
    }
    for (let round = 0; round < 4; round++) make()
    // Its size has been looked at, and the next limit is set with what is kept.
    await new Promise((resolve) => setTimeout(resolve, 1500))
    gc()
    await new Promise((resolve) => setTimeout(resolve, 100))
    new PerformanceObserver(count).observe({ entryTypes: ['gc'] })
    for (let round = 0; round < 100; round++) {
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

test('a process that counts as large looks through its heap more often for the same work', () => {
  const [large, small] = [looksOf(1), looksOf(100_000)]
  expect(large).toBeGreaterThan(small)
})
