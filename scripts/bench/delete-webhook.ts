/**
 * `make bench-delete`: a webhook is deleted while 1,000,000 copies wait for it and some are under way. How long the answer
 * takes, when its last attempt starts, and what its neighbours notice. Exit 1 when that is too much.
 *
 * `--copies n`: 1,000,000 by default. `--seconds n`: of each phase, 15 by default.
 */
import { cpus } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { machineMs } from './machine-clock.ts'
import { DaemonHints } from '../../src/events/daemon-hints.ts'
import { newId } from '../../src/ids.ts'
import { BenchWorld } from './bench-world.ts'
import { delaysOf, sendEvents, untilReceived } from './traffic.ts'

const NEIGHBOURS = 50
const ANSWER_LIMIT_MS = 100
const LAST_START_LIMIT_MS = 1000
/** Twice a quiet p99 of a few milliseconds would be the scheduler's noise: below this nobody notices a neighbour. */
const UNNOTICED_MS = 200
const WORST_P99_MS = 1000

interface Check {
  name: string
  value: number
  limit: number
}

async function measure(world: BenchWorld, copies: number, seconds: number): Promise<Check[]> {
  const [gone] = await world.addWebhooks([world.url('busy/0')])
  const labIds = Array.from({ length: NEIGHBOURS }, () => newId(world.clock.nowMs()))
  await world.addWebhooks(
    labIds.map((_, n) => world.url(`ok/${n}`)),
    labIds,
  )
  process.stderr.write(`bench: writing ${copies} copies …\n`)
  await world.addWaitingCopies(gone!, copies)
  const daemon = await world.startDaemon()
  const hints = new DaemonHints(world.database.knex)
  try {
    await sendEvents(world, hints, labIds, 2)
    await untilReceived(world, 2 * NEIGHBOURS)
    await world.resetReceiver()
    process.stderr.write('bench: quiet …\n')
    await sendEvents(world, hints, labIds, seconds)
    await untilReceived(world, NEIGHBOURS * seconds)
    const quiet = delaysOf((await world.counts(true)).delays)
    await world.makeDue([gone!])
    while ((await world.counts()).busyReceipts === 0) await sleep(10)
    await world.resetReceiver()
    process.stderr.write('bench: deleting …\n')
    const startedAtMs = machineMs()
    await world.deleteWebhook(gone!)
    const answeredAtMs = machineMs()
    hints.send()
    await sendEvents(world, hints, labIds, seconds)
    await untilReceived(world, NEIGHBOURS * seconds)
    const counts = await world.counts(true)
    const during = delaysOf(counts.delays)
    const [row] = await world.database.knex('deliveries').where({ webhook_id: gone!, status: 'discarded' }).count({ n: '*' }) // prettier-ignore
    console.log(`${copies} copies waited; ${counts.busyReceipts} attempts after the deletion began; ${row!.n} discarded after ${seconds} s`) // prettier-ignore
    console.log(`neighbours: p50 ${quiet.p50.toFixed(0)} ms before, ${during.p50.toFixed(0)} ms after; max ${quiet.max.toFixed(0)}, ${during.max.toFixed(0)} ms\n`) // prettier-ignore
    const p99Limit = Math.min(WORST_P99_MS, Math.max(2 * quiet.p99, UNNOTICED_MS))
    return [
      { name: 'answer, ms', value: answeredAtMs - startedAtMs, limit: ANSWER_LIMIT_MS },
      { name: 'last attempt after the answer, ms', value: Math.max(0, counts.lastBusyAtMs - answeredAtMs), limit: LAST_START_LIMIT_MS }, // prettier-ignore
      { name: 'neighbours: p99 before, ms', value: quiet.p99, limit: WORST_P99_MS },
      { name: 'neighbours: p99 after, ms', value: during.p99, limit: p99Limit },
    ]
  } finally {
    hints.close()
    await world.stopDaemon(daemon)
  }
}

async function main(): Promise<boolean> {
  const { values: options } = parseArgs({ options: { copies: { type: 'string' }, seconds: { type: 'string' } } })
  const world = await BenchWorld.open()
  let checks: Check[]
  try {
    checks = await measure(world, Number(options.copies ?? 1_000_000), Number(options.seconds ?? 15))
  } finally {
    await world.close()
  }
  console.log(
    `${cpus().length} x ${cpus()[0]?.model}, Node ${process.version}\n\n| | measured | at most | |\n|---|---|---|---|`,
  )
  for (const { name, value, limit } of checks) {
    console.log(`| ${name} | ${value.toFixed(0)} | ${limit.toFixed(0)} | ${value <= limit ? 'ok' : 'MISSED'} |`)
  }
  return checks.every(({ value, limit }) => value <= limit)
}

main().then(
  (good) => process.exit(good ? 0 : 1),
  (error: Error) => {
    process.stderr.write(`bench: ${error.stack}\n`)
    process.exit(1)
  },
)
