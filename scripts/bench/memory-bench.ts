/**
 * What API and daemon hold in memory under a steady load, beside a backlog of a million copies whose endpoint never answers.
 */
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { median, type Result } from './bench-result.ts'
import type { BenchWorld } from './bench-world.ts'
import { addCopies } from './copies.ts'
import { withService } from './path-bench.ts'
import { untilReceipts } from './receipts.ts'

const LEADS_A_SECOND = 100
const BACKLOG = 1_000_000
const SAMPLE_MS = 2000

/** Resident set of a process, in MB. */
function residentMb(pid: number): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]) / 1024
}

/** @returns the largest of each; beside it the median of the second fifth of the time, which the last fifth is held against */
export async function memory(world: BenchWorld, minutes: number, backlog = BACKLOG): Promise<Result[]> {
  const leads = Math.round(minutes * 60 * LEADS_A_SECOND)
  return withService(world, leads, async (load, baseUrl, { api, daemon }) => {
    const [stuck] = await world.addWebhooks([world.url('hang/0')])
    await addCopies(world, [stuck!], backlog, '{}')
    await world.makeDue([stuck!])
    const samples: { api: number; daemon: number }[] = []
    let isOver = false
    const sampling = (async () => {
      while (!isOver) {
        samples.push({ api: residentMb(api), daemon: residentMb(daemon) })
        await sleep(SAMPLE_MS)
      }
    })()
    try {
      await load.run({
        baseUrls: [baseUrl],
        what: 'leads',
        count: leads,
        connections: 64,
        ratePerSecond: LEADS_A_SECOND,
      })
      await untilReceipts(world, leads)
    } finally {
      isOver = true
      await sampling
    }
    return (['api', 'daemon'] as const).map((name) => {
      const sizes = samples.map((sample) => sample[name])
      const fifth = Math.max(1, Math.floor(sizes.length / 5))
      const early = median(sizes.slice(fifth, 2 * fifth))
      const late = median(sizes.slice(-fifth))
      const note = `${Math.round(early)} MB in the second fifth of the time, ${Math.round(late)} MB in the last one`
      return { name: `memory_${name}`, value: Math.max(...sizes), unit: 'MB', limit: early, note }
    })
  })
}
