/**
 * `make bench-hostile`: a real daemon against every faulty endpoint and every faulty name server at once. Each attempt must be
 * on record once, with the right class, judged and closed in time; afterwards no socket is left and the daemon has not grown.
 * Exit 1 when one is off.
 *
 * `--endpoints n`: of each kind, 4 by default. `--events n`: for each endpoint, 10 by default, and as many before the clock starts;
 * 50 for the full form, some ten minutes.
 */
import { readFile } from 'node:fs/promises'
import { cpus } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { monotonicMs } from '../../src/clock.ts'
import { StartFault } from '../processes.ts'
import { startNameServer } from '../security/name-server.ts'
import { wholeNumber } from '../whole-number.ts'
import { BenchWorld } from './bench-world.ts'
import { HOSTILE_NAMES, hostileName, KINDS, startHostileEndpoint, type HostileEndpoint } from './hostile-endpoints.ts'

const JUDGED_WITHIN_MS = 10_500
const CLOSED_WITHIN_MS = 12_500
const GROWTH_LIMIT_MB = 50
const SOCKETS_GONE_AFTER_MS = 15_000
/** Two requests at a time to one that fails, each of them 12.5 s at the most, and a start. */
const SLOWEST_MS = (events: number) => 30_000 + events * 8000

async function rssMb(pid: number): Promise<number> {
  return Number(/VmRSS:\s+(\d+)/.exec(await readFile(`/proc/${pid}/status`, 'utf8'))![1]) / 1024
}

/** Waits until each attempt is on record. @returns the most memory that the daemon had meanwhile, in MB */
async function untilRecorded(world: BenchWorld, pid: number, attempts: number, timeoutMs: number): Promise<number> {
  const untilMs = monotonicMs() + timeoutMs
  for (let most = 0; ;) {
    most = Math.max(most, await rssMb(pid))
    const [row] = await world.database.knex('attempts').count({ n: '*' })
    if (Number(row!.n) >= attempts) return most
    if (monotonicMs() > untilMs) throw new Error(`${row!.n} of ${attempts} attempts were recorded in time`)
    await sleep(250)
  }
}

async function report(world: BenchWorld, endpoints: HostileEndpoint[], webhookIds: string[], events: number) {
  const faults: string[] = []
  console.log(
    '| endpoint | attempts | classes | judged within ms | closed within ms | sockets left |\n|---|---|---|---|---|---|',
  )
  for (const [kind, { classes }] of Object.entries(KINDS)) {
    const ids = webhookIds.filter((_, n) => endpoints[n]!.kind === kind)
    const own = endpoints.filter((endpoint) => endpoint.kind === kind)
    const rows = await world.database.knex('attempts').whereIn('webhook_id', ids)
    const seen = [...new Set(rows.map((row) => row.class as string))]
    const judgedMs = Math.max(...rows.map((row) => row.duration_ms))
    const closedMs = Math.max(...own.map(({ longestOpenMs }) => longestOpenMs))
    const left = own.reduce((sum, { open }) => sum + open, 0)
    console.log(`| ${[kind, rows.length, seen.join(', '), judgedMs, closedMs.toFixed(0), left].join(' | ')} |`)
    if (rows.length !== ids.length * events || rows.some(({ n }) => n !== 1)) faults.push(`${kind}: attempts`)
    if (!seen.every((name) => classes.includes(name))) faults.push(`${kind}: ${seen.join(', ')}`)
    if (judgedMs > JUDGED_WITHIN_MS) faults.push(`${kind}: judged after ${judgedMs} ms`)
    if (closedMs > CLOSED_WITHIN_MS) faults.push(`${kind}: closed after ${closedMs.toFixed(0)} ms`)
    if (left > 0) faults.push(`${kind}: ${left} sockets left`)
  }
  return faults
}

async function measure(world: BenchWorld, each: number, events: number): Promise<string[]> {
  const kinds = Object.keys(KINDS).flatMap((kind) => Array<string>(each).fill(kind))
  const endpoints = await Promise.all(kinds.map((kind) => startHostileEndpoint(kind, world.tls)))
  const healthy = await world.addWebhooks([world.url('ok/0')])
  const webhookIds = await world.addWebhooks(endpoints.map(({ url }) => url))
  // No second attempts: each recorded one is a first.
  const nameServer = await startNameServer(hostileName)
  const daemon = await world.startDaemon({ RETRY_SCHEDULE: '86400', DELIVERY_DNS_SERVERS: nameServer.address })
  const warmUp = 5000
  await world.addBacklog(healthy, await world.addEvents(warmUp, false))
  // The same once before: what the engine reserves for its heap at such a load is there then, and only a leak still grows.
  const attempts = webhookIds.length * events
  await world.addBacklog(webhookIds, await world.addEvents(attempts, false))
  await world.makeDue([...healthy, ...webhookIds])
  const before = await untilRecorded(world, daemon.pid!, warmUp + attempts, SLOWEST_MS(events) + 60_000)
  for (const table of ['earlier_attempts', 'deliveries']) await world.database.knex(table).truncate()
  await world.addBacklog(webhookIds, await world.addEvents(attempts, false))
  await world.makeDue(webhookIds)
  const most = await untilRecorded(world, daemon.pid!, attempts, SLOWEST_MS(events))
  const untilMs = monotonicMs() + SOCKETS_GONE_AFTER_MS
  while (monotonicMs() < untilMs && endpoints.some(({ open }) => open > 0)) await sleep(100)
  const faults = await report(world, endpoints, webhookIds, events)
  const after = await rssMb(daemon.pid!)
  console.log(`\ndaemon: ${before.toFixed(0)} MB before, ${most.toFixed(0)} MB at most, ${after.toFixed(0)} MB after`)
  if (most - before > GROWTH_LIMIT_MB) faults.push(`the daemon grew by ${(most - before).toFixed(0)} MB`)
  await world.stopDaemon(daemon)
  for (const endpoint of endpoints) endpoint.close()
  nameServer.close()
  return faults
}

async function main(): Promise<boolean> {
  const { values: options } = parseArgs({
    options: { endpoints: { type: 'string', default: '4' }, events: { type: 'string', default: '10' } },
  })
  const each = wholeNumber('endpoints', options.endpoints, 1, 50)
  const events = wholeNumber('events', options.events, 1, 1000)
  console.log(`${cpus().length} x ${cpus()[0]?.model}, Node ${process.version}\n`)
  const world = await BenchWorld.open(undefined, [HOSTILE_NAMES])
  try {
    const faults = await measure(world, each, events)
    for (const fault of faults) console.log(`MISSED ${fault}`)
    console.log(`kinds=${Object.keys(KINDS).length} missed=${faults.length}`)
    return faults.length === 0
  } finally {
    await world.close()
  }
}

main().then(
  (good) => process.exit(good ? 0 : 1),
  (error: Error) => {
    process.stderr.write(`bench: ${error instanceof StartFault ? error.message : error.stack}\n`)
    process.exit(1)
  },
)
