/**
 * How fast a backlog is delivered, beside what plain `request` reaches against the same receiver in the same minute.
 */
import type { ChildProcess } from 'node:child_process'
import { DaemonHints } from '../../src/events/daemon-hints.ts'
import { cpuSeconds, type BenchWorld } from './bench-world.ts'
import { addCopies } from './copies.ts'
import { startMeter } from './cost-meter.ts'
import { machineMs } from './machine-clock.ts'
import { until, untilRecorded } from './receipts.ts'
import { BODY_BYTES } from './sizes.ts'
import { insertRows } from './tenants.ts'

/**
 * Before the clock starts, for both sides: connections are open and the code is compiled. After 10,000 the daemon's still was not, and
 * the compiler took part of what was measured. And once is not enough: when the lanes first run dry, the engine throws away what it
 * has compiled as long as they never did.
 */
const WARM_UP_ROUNDS = 3
const WARM_UP_REQUESTS = 30_000

export interface DeliveryRun {
  /** From the first receipt to the last durable record, per second. */
  rate: number
  /** CPU time of each process, in microseconds a delivery. */
  costUs: Record<string, number>
}

export interface PlainRun {
  /** Per second. */
  rate: number
  /** CPU time of sender and receiver, in microseconds a request. */
  costUs: { sender: number; receiver: number }
}

/** Plain `request` against the same receiver: what this machine can reach at all. */
export async function sendPlain(world: BenchWorld, requests: number, inFlight: number): Promise<PlainRun> {
  const before = await cpuSeconds(world.receiverPid)
  const warmUpRequests = WARM_UP_ROUNDS * WARM_UP_REQUESTS
  const { rate, cpuUs } = await world.rawRate(requests, inFlight, warmUpRequests)
  const receiver = (((await cpuSeconds(world.receiverPid)) - before) / (requests + warmUpRequests)) * 1e6
  return { rate, costUs: { sender: cpuUs, receiver } }
}

export interface DeliveryShape {
  webhooks: number
  deliveries: number
  /** In the environment of the daemons; 1 daemon unless said otherwise. */
  daemons?: number
}

/** @throws when a receipt is missing or came twice */
export async function deliverBacklog(world: BenchWorld, shape: DeliveryShape): Promise<DeliveryRun> {
  const { webhooks, deliveries, daemons = 1 } = shape
  await world.clear()
  const ids = await world.addWebhooks(Array.from({ length: webhooks }, (_, n) => world.url(`ok/${n}`)))
  return withDaemons(world, daemons, async (started) => {
    await warmUp(world, ids)
    await addCopies(world, ids, deliveries, bodyOf(BODY_BYTES))
    const costs = await startMeter(await pidsOf(world, started))
    await world.makeDue(ids)
    await untilRecorded(world, deliveries)
    const endMs = machineMs()
    const costUs = await costs(deliveries)
    const { firstAtMs } = await world.counts()
    return { rate: (deliveries / (endMs - firstAtMs)) * 1000, costUs }
  })
}

/**
 * Events for a lab with that many webhooks, all recorded at one moment.
 * @returns receipts, from that moment to the last durable record
 */
export async function fanOutTo(world: BenchWorld, webhooks: number, events: number): Promise<DeliveryRun> {
  await world.clear()
  const ids = await world.addWebhooks(Array.from({ length: webhooks }, (_, n) => world.url(`ok/${n}`)))
  const receipts = webhooks * events
  return withDaemons(world, 1, async (started) => {
    await warmUp(world, ids)
    const eventIds = await world.addEvents(events, false)
    const hints = new DaemonHints(world.database.knex)
    const costs = await startMeter(await pidsOf(world, started))
    const startedAtMs = machineMs()
    await insertRows(world.database, 'unrouted_events', ['event_id'], eventIds.map((id) => [id])) // prettier-ignore
    hints.send()
    await untilRecorded(world, receipts)
    const endMs = machineMs()
    const costUs = await costs(receipts)
    hints.close()
    return { rate: (receipts / (endMs - startedAtMs)) * 1000, costUs }
  })
}

async function withDaemons<T>(
  world: BenchWorld,
  count: number,
  work: (daemons: ChildProcess[]) => Promise<T>,
): Promise<T> {
  const daemons: ChildProcess[] = []
  try {
    for (let n = 0; n < count; n++) daemons.push(await world.startDaemon())
    return await work(daemons)
  } finally {
    for (const daemon of daemons) await world.stopDaemon(daemon)
  }
}

async function warmUp(world: BenchWorld, webhookIds: string[]): Promise<void> {
  for (let round = 0; round < WARM_UP_ROUNDS; round++) {
    await world.resetReceiver(false)
    await world.addBacklog(webhookIds, await world.addEvents(WARM_UP_REQUESTS, false))
    await world.makeDue(webhookIds)
    await untilRecorded(world, WARM_UP_REQUESTS)
    // A lane that listens would begin with the first rows: the whole backlog is to be there when the clock starts.
    await lanesFree(world)
  }
  await world.resetReceiver()
}

function bodyOf(bytes: number): string {
  return JSON.stringify({ pad: 'x'.repeat(bytes - 10) })
}

async function pidsOf(world: BenchWorld, daemons: ChildProcess[]): Promise<Record<string, number>> {
  const own = daemons.map(({ pid }, n) => [n === 0 ? 'daemon' : `daemon${n + 1}`, pid!] as const)
  return { ...Object.fromEntries(own), database: world.databasePid, receiver: world.receiverPid }
}

async function lanesFree(world: BenchWorld): Promise<void> {
  await until(async () => !(await world.database.knex('lanes').whereNotNull('owner').first('webhook_id')))
}
