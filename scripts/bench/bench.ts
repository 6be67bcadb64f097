/**
 * `make bench-quick`: what the delivery engine reaches, each row beside the machine's own limit measured in the same run.
 * Receipts are counted at the receiver: the run fails when one is missing or came twice. Writes `bench.json` in DATA_DIR.
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { monotonicMs } from '../../src/clock.ts'
import { loadEnvFile, readConfig } from '../../src/config.ts'
import { routeEvents } from '../../src/events/event-routing.ts'
import { BenchWorld, cpuSeconds } from './bench-world.ts'

interface Row {
  name: string
  unit: string
  limit: number | null
  values: number[]
}

const RUNS = 3
const DRAIN_TIMEOUT_MS = 120_000
const BACKLOG = 20_000
const rows: Row[] = []

function median(values: number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)]!
}

function must(condition: unknown, message: string): asserts condition {
  if (!condition) throw new Error(message)
}

/** Waits until the queue is empty: every receipt is recorded durably. @returns the monotonic time of that */
async function drained(world: BenchWorld): Promise<number> {
  const untilMs = monotonicMs() + DRAIN_TIMEOUT_MS
  for (;;) {
    if (!(await world.database.knex('delivery_queue').first('event_id'))) return monotonicMs()
    must(monotonicMs() < untilMs, 'the backlog was not delivered in time')
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

/** Deliveries per second from the first receipt to the last record. */
async function deliveryRate(world: BenchWorld, webhooks: number, deliveries: number): Promise<number> {
  await world.clear()
  const ids = await world.addWebhooks(Array.from({ length: webhooks }, (_, n) => world.url(`ok/${n}`)))
  await world.addBacklog(ids, await world.addEvents(deliveries, false))
  const daemon = await world.startDaemon()
  const endMs = await drained(world)
  const counts = await world.counts()
  await world.stopDaemon(daemon)
  must(
    counts.receipts === deliveries && counts.doubled === 0,
    `${counts.receipts} receipts of ${deliveries}, ${counts.doubled} twice`,
  )
  return (deliveries / (endMs - counts.firstAtMs)) * 1000
}

async function measure(
  name: string,
  unit: string,
  limit: (() => Promise<number>) | null,
  value: () => Promise<number>,
): Promise<Row> {
  const limits: number[] = []
  const values: number[] = []
  for (let run = 1; run <= RUNS; run++) {
    process.stderr.write(`bench: ${name}, run ${run} of ${RUNS} …\n`)
    if (limit) limits.push(await limit())
    values.push(await value())
  }
  const row = { name, unit, limit: limit ? median(limits) : null, values }
  rows.push(row)
  return row
}

async function fanOutRate(world: BenchWorld): Promise<number> {
  const events = 20_000
  await world.clear()
  await world.addWebhooks([world.url('ok/0')])
  await world.addEvents(events, true)
  const startedAtMs = monotonicMs()
  for (let routed = 0; routed < events;)
    routed += (await routeEvents(world.database.batch, world.clock.now(), 500)).events
  const rate = (events / (monotonicMs() - startedAtMs)) * 1000
  const n = (await world.database.knex('delivery_queue').count({ n: '*' }))[0]?.n
  must(Number(n) === events, `${n} deliveries of ${events}`)
  return rate
}

/** The share of a core that an idle daemon takes with so many webhooks, in per cent. */
async function idleShare(world: BenchWorld, webhooks: number): Promise<number> {
  const seconds = 5
  await world.clear()
  await world.addWebhooks(Array.from({ length: webhooks }, (_, n) => world.url(`ok/${n}`)))
  const daemon = await world.startDaemon()
  await new Promise((resolve) => setTimeout(resolve, 1500))
  const before = await cpuSeconds(daemon.pid!)
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000))
  const share = ((await cpuSeconds(daemon.pid!)) - before) / seconds
  await world.stopDaemon(daemon)
  return share * 100
}

function print(): void {
  console.log('| name | median | min | max | limit | ratio | unit |\n|---|---|---|---|---|---|---|')
  for (const { name, unit, limit, values } of rows) {
    const middle = median(values)
    const cells = [middle, Math.min(...values), Math.max(...values)].map((value) => value.toFixed(value < 100 ? 2 : 0))
    const ratio = limit === null ? '' : (middle / limit).toFixed(2)
    console.log(`| ${name} | ${cells.join(' | ')} | ${limit?.toFixed(0) ?? ''} | ${ratio} | ${unit} |`)
  }
}

function save(dataDir: string): string {
  const file = join(dataDir, 'bench.json')
  const report = rows.map(({ name, unit, limit, values }) => {
    const value = median(values)
    return {
      name,
      value,
      unit,
      limit,
      ratio: limit === null ? null : value / limit,
      min: Math.min(...values),
      max: Math.max(...values),
      runs: values.length,
    }
  })
  mkdirSync(dataDir, { recursive: true })
  writeFileSync(file, `${JSON.stringify(report, null, 2)}\n`)
  return file
}

async function main(): Promise<void> {
  loadEnvFile()
  const { dataDir } = readConfig()
  const world = await BenchWorld.open()
  try {
    await measure(
      'delivery_one_webhook',
      '1/s',
      () => world.rawRate(BACKLOG, 10),
      () => deliveryRate(world, 1, BACKLOG),
    )
    await measure(
      'delivery_200_webhooks',
      '1/s',
      () => world.rawRate(BACKLOG, 64),
      () => deliveryRate(world, 200, BACKLOG),
    )
    await measure('fan_out', '1/s', null, () => fanOutRate(world))
    const small = await measure('backlog_10k', '1/s', null, () => deliveryRate(world, 200, 10_000))
    const large = await measure(
      'backlog_100k',
      '1/s',
      () => Promise.resolve(median(small.values)),
      () => deliveryRate(world, 200, 100_000),
    )
    must(large.values.length === RUNS, 'a run is missing')
    await measure('idle_10k', '% of a core', null, () => idleShare(world, 10_000))
  } finally {
    await world.close()
  }
  print()
  console.log(`\nbench: written to ${save(dataDir)}`)
}

main().then(
  () => process.exit(0),
  (error: Error) => {
    process.stderr.write(`bench: ${error.stack}\n`)
    process.exit(1)
  },
)
