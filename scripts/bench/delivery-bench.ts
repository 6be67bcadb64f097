/**
 * How fast a backlog is delivered, beside what plain `request` reaches against the same receiver in the same minute.
 */
import { monotonicMs } from '../../src/clock.ts'
import { machineMs } from './machine-clock.ts'
import { cpuSeconds, type BenchWorld } from './bench-world.ts'

/** Before the clock starts, for both sides: connections are open and the code is compiled. */
export const WARM_UP_REQUESTS = 10_000
const DRAIN_TIMEOUT_MS = 180_000

export interface DeliveryRun {
  /** From the first receipt to the last durable record, per second. */
  rate: number
  /** CPU time of each process, in microseconds a delivery. */
  costUs: Record<Part, number>
}

type Part = 'daemon' | 'database' | 'receiver'

export interface PlainRun {
  /** Per second. */
  rate: number
  /** CPU time of sender and receiver, in microseconds a request. */
  costUs: { sender: number; receiver: number }
}

/** Plain `request` against the same receiver: what this machine can reach at all. */
export async function sendPlain(world: BenchWorld, requests: number, inFlight: number): Promise<PlainRun> {
  const before = await cpuSeconds(world.receiverPid)
  const { rate, cpuUs } = await world.rawRate(requests, inFlight, WARM_UP_REQUESTS)
  const receiver = (((await cpuSeconds(world.receiverPid)) - before) / (requests + WARM_UP_REQUESTS)) * 1e6
  return { rate, costUs: { sender: cpuUs, receiver } }
}

export interface DeliveryShape {
  webhooks: number
  deliveries: number
}

/** @throws when a receipt is missing or came twice */
export async function deliverBacklog(world: BenchWorld, { webhooks, deliveries }: DeliveryShape): Promise<DeliveryRun> {
  await world.clear()
  const ids = await world.addWebhooks(Array.from({ length: webhooks }, (_, n) => world.url(`ok/${n}`)))
  const daemon = await world.startDaemon()
  try {
    await world.addBacklog(ids, await world.addEvents(WARM_UP_REQUESTS, false))
    await world.makeDue(ids)
    await drained(world, WARM_UP_REQUESTS)
    // A lane that listens would begin with the first rows: the whole backlog is to be there when the clock starts.
    await lanesFree(world)
    await world.resetReceiver()
    await world.addBacklog(ids, await world.addEvents(deliveries, false))
    const before = await cpuOf(world, daemon.pid!)
    await world.makeDue(ids)
    const endMs = await drained(world, deliveries)
    const after = await cpuOf(world, daemon.pid!)
    const counts = await world.counts()
    if (counts.receipts !== deliveries || counts.doubled > 0) {
      throw new Error(`${counts.receipts} receipts of ${deliveries}, ${counts.doubled} twice`)
    }
    const cost = (part: Part) => ((after[part] - before[part]) / deliveries) * 1e6
    return {
      rate: (deliveries / (endMs - counts.firstAtMs)) * 1000,
      costUs: { daemon: cost('daemon'), database: cost('database'), receiver: cost('receiver') },
    }
  } finally {
    await world.stopDaemon(daemon)
  }
}

async function cpuOf(world: BenchWorld, daemonPid: number): Promise<Record<Part, number>> {
  return {
    daemon: await cpuSeconds(daemonPid),
    database: await cpuSeconds(world.databasePid),
    receiver: await cpuSeconds(world.receiverPid),
  }
}

/**
 * Waits until the queue is empty: every receipt is recorded durably. The queue is asked once the receiver has them all: a
 * look at its head walks over what was deleted there, and many of them would be a load of their own.
 * @returns the machine's time of that
 */
async function drained(world: BenchWorld, deliveries: number): Promise<number> {
  await until(async () => (await world.counts()).receipts >= deliveries)
  await until(async () => !(await world.database.knex('delivery_queue').first('event_id')))
  return machineMs()
}

async function lanesFree(world: BenchWorld): Promise<void> {
  await until(async () => !(await world.database.knex('lanes').whereNotNull('owner').first('webhook_id')))
}

async function until(condition: () => Promise<boolean>): Promise<void> {
  const untilMs = monotonicMs() + DRAIN_TIMEOUT_MS
  while (!(await condition())) {
    if (monotonicMs() > untilMs) throw new Error('the backlog was not delivered in time')
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}
