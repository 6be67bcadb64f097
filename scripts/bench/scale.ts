/**
 * `make bench-scale`: deliveries per second with 1, 2 and 3 daemons, and leads per second with 1, 2 and 3 APIs, on one database.
 * Beside each rate the CPU time that each kind of process needed: what is at its core's end is what to add to.
 *
 * `--deliveries n`: 40,000 by default. `--leads n`: 15,000 by default.
 */
import { cpus } from 'node:os'
import { parseArgs } from 'node:util'
import { BenchWorld } from './bench-world.ts'
import { startMeter } from './cost-meter.ts'
import { deliverBacklog } from './delivery-bench.ts'
import { Load, rateOf } from './load.ts'
import { addTenants, tenantsFor } from './tenants.ts'

const MOST = 3
const CONNECTIONS = 64

interface Line {
  what: string
  rate: number
  costUs: Record<string, number>
}

async function withApis(world: BenchWorld, apis: number, leads: number): Promise<Line> {
  await world.clear()
  const load = new Load(await addTenants(world, Math.max(500, 3 * tenantsFor(leads))))
  const started: Awaited<ReturnType<BenchWorld['startApi']>>[] = []
  try {
    for (let n = 0; n < apis; n++) started.push(await world.startApi())
    const baseUrls = started.map(({ port }) => `http://127.0.0.1:${port}`)
    const order = { baseUrls, what: 'leads' as const, connections: CONNECTIONS }
    await load.run({ ...order, count: Math.ceil(leads / 5) })
    const pids = Object.fromEntries(started.map(({ child }, n) => [`api ${n + 1}`, child.pid!]))
    const costs = await startMeter({ ...pids, database: world.databasePid })
    const rate = rateOf(await load.run({ ...order, count: leads }), leads)
    return { what: `${apis} API${apis > 1 ? 's' : ''}, leads`, rate, costUs: await costs(leads) }
  } finally {
    load.close()
    for (const { child } of started) await world.stopDaemon(child)
  }
}

async function main(): Promise<void> {
  const { values: options } = parseArgs({
    options: { deliveries: { type: 'string', default: '40000' }, leads: { type: 'string', default: '15000' } },
  })
  const lines: Line[] = []
  const world = await BenchWorld.open()
  try {
    for (let n = 1; n <= MOST; n++) {
      process.stderr.write(`bench: ${n} daemons, ${n} APIs …\n`)
      const run = await deliverBacklog(world, { webhooks: 200, deliveries: Number(options.deliveries), daemons: n })
      lines.push({ what: `${n} daemon${n > 1 ? 's' : ''}, deliveries`, ...run })
      lines.push(await withApis(world, n, Number(options.leads)))
    }
  } finally {
    await world.close()
  }
  console.log(`${cpus().length} x ${cpus()[0]?.model}, Node ${process.version}\n`)
  console.log('| processes | a second | share of a core of each |')
  console.log('|---|---|---|')
  for (const { what, rate, costUs } of lines.toSorted(
    (a, b) => a.what.slice(2).localeCompare(b.what.slice(2)) || a.what.localeCompare(b.what),
  )) {
    const shares = Object.entries(costUs).map(([part, us]) => `${part} ${Math.round((us * rate) / 1e4)} %`)
    console.log(`| ${what} | ${Math.round(rate)} | ${shares.join(', ')} |`)
  }
}

main().then(
  () => process.exit(0),
  (error: Error) => {
    process.stderr.write(`bench: ${error.stack}\n`)
    process.exit(1)
  },
)
