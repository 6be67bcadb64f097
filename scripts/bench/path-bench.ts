/**
 * What a client of lead/create sees: requests answered per second, and how long an event takes from its request to the
 * receiver. Beside each the bare server of `bare-api-process.ts`, in the same minute with the same client.
 */
import type { ChildProcess } from 'node:child_process'
import { startBareApi } from './bare-api.ts'
import type { Result } from './bench-result.ts'
import type { BenchWorld } from './bench-world.ts'
import { startMeter } from './cost-meter.ts'
import { machineMs } from './machine-clock.ts'
import { Load, rateOf } from './load.ts'
import type { LoadOrder } from './load-process.ts'
import { untilReceipts, untilRecorded } from './receipts.ts'
import type { Sizes } from './sizes.ts'
import { addTenants, addTenantWebhooks, tenantsFor, type Tenant } from './tenants.ts'
import { delaysOf } from './traffic.ts'

const CONNECTIONS = 64
/** Beside a rate, for which tenants have to be there. */
const SPARE_LEADS = 3000

/** Those that one run needs: every run has tenants of its own, so that no two share a minute's budget. */
function tenantsOf(world: BenchWorld, calls: number, atLeast: number): Promise<Tenant[]> {
  return addTenants(world, Math.max(atLeast, 2 * tenantsFor(calls)))
}

/** Calls of lead/create per second, without a daemon: from the request to its durable answer. */
export async function leadCreate(world: BenchWorld, { leads, warmUpLeads }: Sizes): Promise<Result[]> {
  await world.clear()
  const tenants = await tenantsOf(world, leads + warmUpLeads, 500)
  const load = new Load(tenants)
  const order = (baseUrl: string, count: number): LoadOrder => ({ baseUrls: [baseUrl], what: 'leads', count, connections: CONNECTIONS }) // prettier-ignore
  const measure = async (baseUrl: string, api: number) => {
    await load.run(order(baseUrl, warmUpLeads))
    const costs = await startMeter({ api, database: world.databasePid })
    const rate = rateOf(await load.run(order(baseUrl, leads)), leads)
    return { rate, costUs: await costs(leads) }
  }
  const bareApi = await startBareApi({ tenants, mysqlUrl: world.mysqlUrl })
  const bare = await measure(bareApi.baseUrl, bareApi.child.pid!).finally(() => bareApi.child.kill('SIGKILL'))
  const { child, port } = await world.startApi()
  try {
    const before = await entries(world)
    const own = await measure(`http://127.0.0.1:${port}`, child.pid!)
    const written = (await entries(world)) - before
    if (written !== leads + warmUpLeads) throw new Error(`${written} entries of ${leads + warmUpLeads}`)
    return [{ name: 'lead_create', value: own.rate, unit: '1/s', limit: bare.rate, costUs: own.costUs, limitCostUs: bare.costUs }] // prettier-ignore
  } finally {
    load.close()
    await world.stopDaemon(child)
  }
}

async function entries(world: BenchWorld): Promise<number> {
  return Number((await world.database.knex('entries').count({ n: '*' }))[0]!.n)
}

/** From the first request to the last durable record of a receipt, each tenant with a webhook of its own. */
export async function wholePath(world: BenchWorld, { leads, warmUpLeads }: Sizes): Promise<Result[]> {
  const bare = await withBarePath(world, async (load, baseUrl) => {
    await load.run({ baseUrls: [baseUrl], what: 'leads', count: warmUpLeads, connections: CONNECTIONS })
    await untilReceipts(world, warmUpLeads)
    await world.resetReceiver(false)
    const startedAtMs = machineMs()
    await load.run({ baseUrls: [baseUrl], what: 'leads', count: leads, connections: CONNECTIONS })
    await untilReceipts(world, leads)
    return (leads / (machineMs() - startedAtMs)) * 1000
  })
  return withService(world, leads + warmUpLeads, async (load, baseUrl, pids) => {
    await load.run({ baseUrls: [baseUrl], what: 'leads', count: warmUpLeads, connections: CONNECTIONS })
    await untilRecorded(world, warmUpLeads)
    await world.resetReceiver()
    const costs = await startMeter(pids)
    const { startedAtMs } = await load.run({
      baseUrls: [baseUrl],
      what: 'leads',
      count: leads,
      connections: CONNECTIONS,
    })
    await untilRecorded(world, leads)
    const rate = (leads / (machineMs() - startedAtMs)) * 1000
    return [{ name: 'whole_path', value: rate, unit: '1/s', limit: bare, costUs: await costs(leads) }]
  })
}

/**
 * On an otherwise idle service, on a fixed schedule: from when a request should leave to the head of its event's receipt. The service
 * has had some load before, as one that has been up for a day: code that has not run often yet is not compiled.
 */
export async function latency(
  world: BenchWorld,
  ratePerSecond: number,
  { latencySeconds, warmUpLeads }: Sizes,
): Promise<Result[]> {
  const count = ratePerSecond * latencySeconds
  const atOnce = (baseUrl: string, count: number): LoadOrder => ({ baseUrls: [baseUrl], what: 'leads', count, connections: CONNECTIONS }) // prettier-ignore
  const paced = (baseUrl: string, count: number): LoadOrder => ({ ...atOnce(baseUrl, count), ratePerSecond })
  /** @param forget false: of the control's two sides only the service is one that has to fail */
  const measure = async (load: Load, baseUrl: string, arrived: typeof untilReceipts, forget?: false) => {
    for (const order of [atOnce(baseUrl, warmUpLeads), paced(baseUrl, Math.min(count, 5 * ratePerSecond))]) {
      await load.run(order)
      await arrived(world, order.count)
      await world.resetReceiver(forget)
    }
    await load.run(paced(baseUrl, count))
    await arrived(world, count)
    return delaysOf((await world.counts(true)).delays)
  }
  const bare = await withBarePath(world, (load, baseUrl) => measure(load, baseUrl, untilReceipts, false))
  const own = await withService(world, count + warmUpLeads, (load, baseUrl) => measure(load, baseUrl, untilRecorded))
  return (['p50', 'p99'] as const).map((share) => ({
    name: `latency_${ratePerSecond}_${share}`,
    value: own[share],
    unit: 'ms',
    limit: bare[share],
  }))
}

type Pids = { api: number; daemon: number; database: number; receiver: number }

/** The service as it is run, with tenants that have a webhook each. */
export async function withService<T>(
  world: BenchWorld,
  leads: number,
  work: (load: Load, baseUrl: string, pids: Pids) => Promise<T>,
  env: Record<string, string> = {},
): Promise<T> {
  await world.clear()
  const tenants = await tenantsOf(world, leads + SPARE_LEADS, 2000)
  await addTenantWebhooks(world, tenants)
  const started: ChildProcess[] = []
  const load = new Load(tenants)
  try {
    const daemon = await world.startDaemon(env)
    started.push(daemon)
    const { child: api, port } = await world.startApi(env)
    started.push(api)
    const pids = { api: api.pid!, daemon: daemon.pid!, database: world.databasePid, receiver: world.receiverPid }
    return await work(load, `http://127.0.0.1:${port}`, pids)
  } finally {
    load.close()
    for (const child of started.reverse()) await world.stopDaemon(child)
  }
}

async function withBarePath<T>(world: BenchWorld, work: (load: Load, baseUrl: string) => Promise<T>): Promise<T> {
  await world.clear()
  const tenants = await addTenants(world, 2000)
  const bare = await startBareApi({ tenants, mysqlUrl: world.mysqlUrl, endpoint: world.url('ok/bare'), caFile: world.tls.caFile }) // prettier-ignore
  const load = new Load(tenants)
  try {
    return await work(load, bare.baseUrl)
  } finally {
    load.close()
    bare.child.kill('SIGKILL')
  }
}
