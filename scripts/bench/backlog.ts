/**
 * `make bench-backlog`: 1,000,000 due copies over 200 webhooks, a tenth of them dead; and an endpoint that comes back after
 * hours for which 50,000 copies wait.
 *
 *     node scripts/bench/backlog.ts [--n 1000000] [--due 50000] [--only backlog|recovery]
 *
 * The healthy part drains at 0.8 of the rate of a backlog of 10,000 at least; new events of webhooks that have no backlog wait
 * no longer than a second meanwhile; the daemon stays below 250 MB; the endpoint that is back gets ten requests at once and no more,
 * everything within ten minutes, and its neighbours don't notice. Nothing comes twice. Exit 1 when one is off.
 */
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { cpus } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { monotonicMs } from '../../src/clock.ts'
import { DaemonHints } from '../../src/events/daemon-hints.ts'
import { newId } from '../../src/ids.ts'
import { BenchWorld, type Counts } from './bench-world.ts'
import { delaysOf, sendEvents } from './traffic.ts'

const WEBHOOKS = 200
/** Half of them hang, half refuse. */
const DEAD = 20
/** Webhooks without a backlog, which get an event each second meanwhile. */
const NEIGHBOURS = 20
const SMALL_BACKLOG = 10_000
/** Reserved by IANA and used by nothing here. */
const REFUSING_PORT = 49_151
const LEAST_RATIO = 0.8
const NEW_EVENTS_P99_MS = 1000
const RECOVERY_P99_MS = 1000
const MOST_MB = 250
const MOST_AT_ONCE = 10
const DRAINED_WITHIN_S = 600
const LOOK_EACH_MS = 50
/** The least rate that is waited for. */
const LEAST_RATE = 200
const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS

const { values } = parseArgs({
  options: {
    n: { type: 'string', default: '1000000' },
    due: { type: 'string', default: '50000' },
    only: { type: 'string' },
  },
})
const say = (line: string) => process.stderr.write(`bench-backlog: ${line}\n`)

interface Check {
  name: string
  value: number
  limit: number
  atLeast?: true
}

async function rssMb({ pid }: ChildProcess): Promise<number> {
  return Number(/VmRSS:\s+(\d+)/.exec(await readFile(`/proc/${pid}/status`, 'utf8'))![1]) / 1024
}

/** Sends an event a second to each neighbour until `isDone`. @returns the most memory that the daemon had, in MB */
async function whileNeighboursGo(
  world: BenchWorld,
  labIds: string[],
  daemon: ChildProcess,
  isDone: () => boolean | Promise<boolean>,
  timeoutSeconds: number,
): Promise<{ counts: Counts; mostMb: number; sent: number; doneAtMs: number }> {
  const hints = new DaemonHints(world.database.knex)
  let mostMb = 0
  let sent = 0
  let doneAtMs: number | undefined
  const watching = setInterval(async () => {
    if (doneAtMs === undefined && (await isDone())) doneAtMs ??= monotonicMs()
  }, LOOK_EACH_MS)
  try {
    for (const endMs = monotonicMs() + timeoutSeconds * 1000; ;) {
      await sendEvents(world, hints, labIds, 1)
      sent += labIds.length
      mostMb = Math.max(mostMb, await rssMb(daemon))
      if (doneAtMs !== undefined) break
      if (monotonicMs() > endMs) throw new Error(`not drained within ${timeoutSeconds} s`)
    }
  } finally {
    clearInterval(watching)
    hints.close()
  }
  // The last of their receipts.
  await sleep(3000)
  return { counts: await world.counts(true), mostMb, sent, doneAtMs }
}

/** A copy of every event that is there for each of these webhooks, due then, written by the server itself. */
async function addCopies(world: BenchWorld, webhookIds: string[], attempts: number, dueAt: Date): Promise<void> {
  for (const webhookId of webhookIds) {
    await world.database.knex.raw(
      'INSERT INTO delivery_queue (webhook_id, due_at, event_id, attempts, epoch) SELECT ?, ?, id, ?, 1 FROM events',
      [webhookId, dueAt, attempts],
    )
  }
}

async function addNeighbours(world: BenchWorld): Promise<string[]> {
  const labIds = Array.from({ length: NEIGHBOURS }, () => newId(world.clock.nowMs()))
  const endpoints = labIds.map((_, n) => world.url(`ok/neighbour-${n}`))
  await world.addWebhooks(endpoints, labIds)
  return labIds
}

/** Drains so many copies, of which those of dead webhooks stay. @returns the rate of the healthy ones, per second */
async function drain(world: BenchWorld, copies: number, dead: number) {
  await world.clear()
  const ill = Array.from({ length: dead }, (_, n) =>
    n % 2 ? world.url(`hang/${n}`) : `https://127.0.0.1:${REFUSING_PORT}/${n}`,
  )
  const healthy = Array.from({ length: WEBHOOKS - dead }, (_, n) => world.url(`ok/${n}`))
  const webhookIds = await world.addWebhooks([...ill, ...healthy])
  // Of 1970: what the backlog has waited is told from what the neighbours wait.
  await world.addEvents(Math.ceil(copies / WEBHOOKS), false, undefined, 0)
  const [[{ n: events }]] = await world.database.knex.raw('SELECT COUNT(*) AS n FROM events')
  say(`writing ${Number(events) * WEBHOOKS} copies …`)
  await addCopies(world, webhookIds, 0, world.clock.now())
  const labIds = await addNeighbours(world)
  const daemon = await world.startDaemon()
  try {
    await world.makeDue(webhookIds)
    say('draining …')
    const wanted = Number(events) * healthy.length
    const startedAtMs = monotonicMs()
    const isWaiting = world.database.knex('delivery_queue').whereIn('webhook_id', webhookIds.slice(dead))
    const isDone = async () => (await isWaiting.clone().first('event_id')) === undefined
    const seen = await whileNeighboursGo(world, labIds, daemon, isDone, 120 + wanted / LEAST_RATE)
    const missing = wanted + seen.sent - seen.counts.receipts
    return { rate: wanted / ((seen.doneAtMs - startedAtMs) / 1000), missing, ...seen }
  } finally {
    daemon.kill('SIGKILL')
  }
}

async function measureBacklog(world: BenchWorld): Promise<Check[]> {
  const small = await drain(world, SMALL_BACKLOG, 0)
  const large = await drain(world, Number(values.n), DEAD)
  const delays = delaysOf(large.counts.delays.filter((ms) => ms < DAY_MS))
  console.log(`${SMALL_BACKLOG} copies: ${small.rate.toFixed(0)}/s; ${values.n} copies, ${DEAD} of ${WEBHOOKS} webhooks dead: ${large.rate.toFixed(0)}/s`) // prettier-ignore
  return [
    { name: 'rate beside a backlog of 10,000', value: large.rate / small.rate, limit: LEAST_RATIO, atLeast: true },
    { name: 'new events meanwhile: p99, ms', value: delays.p99, limit: NEW_EVENTS_P99_MS },
    { name: 'daemon at most, MB', value: large.mostMb, limit: MOST_MB },
    { name: 'missing', value: small.missing + large.missing, limit: 0 },
    { name: 'twice', value: small.counts.doubled + large.counts.doubled, limit: 0 },
  ]
}

interface IllEndpoint {
  url: string
  /** Answers 503 until it is set. */
  isBack: boolean
  receipts: Set<string>
  again: number
  /** The most requests that it has had at once. */
  atOnce: number
  close(): void
}

async function startIllEndpoint({ tls }: BenchWorld): Promise<IllEndpoint> {
  let now = 0
  const server = createServer({ cert: readFileSync(tls.certificateFile), key: readFileSync(tls.keyFile) })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const endpoint: IllEndpoint = {
    url: `https://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    isBack: false,
    receipts: new Set(),
    again: 0,
    atOnce: 0,
    close: () => void (server.close(), server.closeAllConnections()),
  }
  server.on('request', (request, response) => {
    request.resume()
    endpoint.atOnce = Math.max(endpoint.atOnce, ++now)
    // Counted off before the answer: the next request may be here before this side knows that it has gone out.
    const answer = (status: number) => {
      now--
      response.writeHead(status).end()
    }
    if (!endpoint.isBack) return answer(503)
    const id = String(request.headers['webhook-id'])
    if (endpoint.receipts.has(id)) endpoint.again += 1
    endpoint.receipts.add(id)
    // A moment later: what comes at once is seen at once.
    setTimeout(() => answer(204), 5)
  })
  return endpoint
}

async function measureRecovery(world: BenchWorld): Promise<Check[]> {
  await world.clear()
  const due = Number(values.due)
  await world.addEvents(due, false)
  const endpoint = await startIllEndpoint(world)
  const [ill] = await world.addWebhooks([endpoint.url])
  // As after six hours: it fails, and what waits is due in the hours to come.
  await addCopies(world, [ill!], 3, new Date(world.clock.nowMs() + HOUR_MS))
  await world.database
    .knex('webhooks')
    .where({ id: ill! })
    .update({
      first_failure_at: new Date(world.clock.nowMs() - 6 * HOUR_MS),
      failed_attempts: 100,
      last_error: 'HTTP status 503',
    })
  const labIds = await addNeighbours(world)
  const daemon = await world.startDaemon()
  try {
    say(`an endpoint is back for which ${due} copies wait …`)
    endpoint.isBack = true
    const first = world.database.knex('delivery_queue').where({ webhook_id: ill! }).orderBy('event_id').limit(1)
    await first.update({ due_at: world.clock.now() })
    await world.makeDue([ill!])
    const startedAtMs = monotonicMs()
    const isDone = () => endpoint.receipts.size >= due
    const seen = await whileNeighboursGo(world, labIds, daemon, isDone, DRAINED_WITHIN_S)
    return [
      { name: 'back: requests at once', value: endpoint.atOnce, limit: MOST_AT_ONCE },
      { name: 'back: drained after s', value: (seen.doneAtMs - startedAtMs) / 1000, limit: DRAINED_WITHIN_S },
      { name: 'back: twice', value: endpoint.again, limit: 0 },
      { name: 'its neighbours: p99, ms', value: delaysOf(seen.counts.delays).p99, limit: RECOVERY_P99_MS },
      { name: 'its neighbours: missing', value: seen.sent - seen.counts.receipts, limit: 0 },
    ]
  } finally {
    daemon.kill('SIGKILL')
    endpoint.close()
  }
}

async function main(): Promise<boolean> {
  const startedAtMs = monotonicMs()
  const world = await BenchWorld.open()
  const checks: Check[] = []
  try {
    if (values.only !== 'recovery') checks.push(...(await measureBacklog(world)))
    if (values.only !== 'backlog') checks.push(...(await measureRecovery(world)))
  } finally {
    await world.close()
  }
  console.log(`${cpus().length} x ${cpus()[0]?.model}, Node ${process.version}\n\n| | measured | limit | |\n|---|---|---|---|`) // prettier-ignore
  const holds = ({ value, limit, atLeast }: Check) => (atLeast ? value >= limit : value <= limit)
  for (const check of checks) {
    const digits = check.atLeast ? 2 : 0
    console.log(
      `| ${check.name} | ${check.value.toFixed(digits)} | ${check.limit} | ${holds(check) ? 'ok' : 'MISSED'} |`,
    )
  }
  const isRight = checks.every(holds)
  const seconds = Math.round((monotonicMs() - startedAtMs) / 1000)
  console.log(`\nbench-backlog: ${seconds} s, ${isRight ? 'all as it must be' : 'NOT as it must be'}`)
  return isRight
}

main().then(
  (isRight) => process.exit(isRight ? 0 : 1),
  (error: Error) => {
    process.stderr.write(`bench-backlog: ${error.stack}\n`)
    process.exit(1)
  },
)
