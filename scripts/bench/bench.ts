/**
 * `make bench-quick`: what the delivery engine reaches, each row beside the machine's own limit measured in the same run.
 * Receipts are counted at the receiver: the run fails when one is missing or came twice. Writes `bench.json` in DATA_DIR.
 *
 * `--rows name,name`: only these. `--runs n`: of each row, 3 by default. `--profile folder`: a CPU profile of each daemon.
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { cpus } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { loadEnvFile, readConfig } from '../../src/config.ts'
import { BenchWorld } from './bench-world.ts'
import { deliverBacklog, sendPlain, type DeliveryRun, type DeliveryShape, type PlainRun } from './delivery-bench.ts'
import { fanOutRate, idleShare } from './engine-bench.ts'

interface Run {
  value: number
  /** CPU time a delivery of each process, in microseconds. */
  costUs?: DeliveryRun['costUs']
  /** What plain `request` reached just before. */
  plain?: PlainRun
}

interface Row {
  name: string
  unit: string
  runs: Run[]
}

const DEFAULT_RUNS = 3
const MEASURED = 40_000

function median(values: number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)]!
}

function sum(costs: Record<string, number>): number {
  return Object.values(costs).reduce((total, cost) => total + cost, 0)
}

/** @param inFlight of the plain requests; undefined: no limit to compare with */
async function delivery(world: BenchWorld, shape: DeliveryShape, inFlight?: number): Promise<Run> {
  const plain = inFlight === undefined ? {} : { plain: await sendPlain(world, MEASURED, inFlight) }
  const { rate, costUs } = await deliverBacklog(world, shape)
  return { value: rate, costUs, ...plain }
}

/** In flight at once: what one webhook may have (DELIVERY_MAX_IN_FLIGHT), and what a daemon keeps busy with 200 of them. */
const ROWS: Record<string, { unit: string; run: (world: BenchWorld) => Promise<Run> }> = {
  delivery_one_webhook: { unit: '1/s', run: (world) => delivery(world, { webhooks: 1, deliveries: MEASURED }, 10) },
  delivery_200_webhooks: { unit: '1/s', run: (world) => delivery(world, { webhooks: 200, deliveries: MEASURED }, 128) },
  backlog_10k: { unit: '1/s', run: (world) => delivery(world, { webhooks: 200, deliveries: 10_000 }) },
  backlog_100k: { unit: '1/s', run: (world) => delivery(world, { webhooks: 200, deliveries: 100_000 }) },
  fan_out: { unit: '1/s', run: async (world) => ({ value: await fanOutRate(world) }) },
  idle_10k: { unit: '% of a core', run: async (world) => ({ value: await idleShare(world, 10_000) }) },
}

function report({ name, unit, runs }: Row) {
  const values = runs.map(({ value }) => value)
  // Of each pair: the two were measured within seconds, so that what else the machine does falls on both.
  const pairs = runs.flatMap(({ value, costUs, plain }) => (plain && costUs ? [{ value, costUs, plain }] : []))
  const medianOf = (numbers: number[]) => (numbers.length > 0 ? median(numbers) : null)
  return {
    name,
    value: median(values),
    unit,
    limit: medianOf(pairs.map(({ plain }) => plain.rate)),
    ratio: medianOf(pairs.map(({ value, plain }) => value / plain.rate)),
    min: Math.min(...values),
    max: Math.max(...values),
    runs: values.length,
    // CPU time of all processes together: what the rates come to where nothing else runs and no core is ever idle.
    cpuRatio: medianOf(pairs.map(({ costUs, plain }) => sum(plain.costUs) / sum(costUs))),
    plainCostUs: pairs[0]?.plain.costUs ?? null,
    costUs: runs[0]?.costUs ?? null,
  }
}

function costText(costs: Record<string, number> | null): string {
  return costs ? Object.entries(costs).map(([part, us]) => `${part} ${Math.round(us)}`).join(', ') : '' // prettier-ignore
}

function print(rows: ReturnType<typeof report>[]): void {
  console.log(`${cpus().length} x ${cpus()[0]?.model}, Node ${process.version}; CPU in µs each\n`)
  console.log('| name | median | min | max | unit | raw limit | ratio | CPU ratio | CPU | CPU of raw |')
  console.log('|---|---|---|---|---|---|---|---|---|---|')
  for (const row of rows) {
    const cells = [row.value, row.min, row.max].map((value) => value.toFixed(value < 100 ? 2 : 0))
    const limits = [row.limit?.toFixed(0) ?? '', row.ratio?.toFixed(2) ?? '', row.cpuRatio?.toFixed(2) ?? '']
    const costs = [costText(row.costUs), costText(row.plainCostUs)]
    console.log(`| ${[row.name, ...cells, row.unit, ...limits, ...costs].join(' | ')} |`)
  }
  const [small, large] = ['backlog_10k', 'backlog_100k'].map((name) => rows.find((row) => row.name === name)?.costUs)
  if (small && large)
    console.log(`\nbacklog_100k: ${(sum(large) / sum(small)).toFixed(2)} of the CPU time of backlog_10k, each delivery`)
}

async function main(): Promise<void> {
  const { values: options } = parseArgs({
    options: { rows: { type: 'string' }, runs: { type: 'string' }, profile: { type: 'string' } },
  })
  loadEnvFile()
  const { dataDir } = readConfig()
  const names = options.rows?.split(',') ?? Object.keys(ROWS)
  const unknown = names.find((name) => !ROWS[name])
  if (unknown) throw new Error(`no row ${unknown}; there are ${Object.keys(ROWS).join(', ')}`)
  const rows: Row[] = names.map((name) => ({ name, unit: ROWS[name]!.unit, runs: [] }))
  const world = await BenchWorld.open(options.profile)
  try {
    // All rows in turn, again and again: a slow minute of the machine falls on every row alike.
    for (let run = 1; run <= Number(options.runs ?? DEFAULT_RUNS); run++) {
      for (const row of rows) {
        process.stderr.write(`bench: ${row.name}, run ${run} …\n`)
        row.runs.push(await ROWS[row.name]!.run(world))
      }
    }
  } finally {
    await world.close()
  }
  const reports = rows.map(report)
  print(reports)
  mkdirSync(dataDir, { recursive: true })
  const file = join(dataDir, 'bench.json')
  writeFileSync(file, `${JSON.stringify(reports, null, 2)}\n`)
  console.log(`\nbench: written to ${file}`)
}

main().then(
  () => process.exit(0),
  (error: Error) => {
    process.stderr.write(`bench: ${error.stack}\n`)
    process.exit(1)
  },
)
