/**
 * The tests of a lab that has 5,000, each with a price of the caller's party: as they are, compressed, unchanged since the last
 * call, and just after a change. Beside them a bare server that serialises the same list from memory.
 */
import { startBareApi } from './bare-api.ts'
import type { Result } from './bench-result.ts'
import type { BenchWorld } from './bench-world.ts'
import { startMeter } from './cost-meter.ts'
import { Load, rateOf } from './load.ts'
import type { LoadOrder } from './load-process.ts'
import { addCatalogue, addTenants, tenantsFor, type Tenant } from './tenants.ts'

const TESTS = 5000
const CONNECTIONS = 8

const FORMS: Record<string, { order: Partial<LoadOrder>; status: number }> = {
  tests_list: { order: {}, status: 200 },
  tests_list_gzip: { order: { headers: { 'accept-encoding': 'gzip' } }, status: 200 },
  tests_list_unchanged: { order: { conditional: true }, status: 304 },
}

let tenants: Tenant[] = []

/** @param calls of each form */
export async function testsList(world: BenchWorld, calls: number): Promise<Result[]> {
  // The forms, what comes before them, and three runs within one minute. The catalogue is written once for all runs.
  const needed = tenantsFor(calls * 15)
  if (tenants.length === 0) {
    tenants = await addTenants(world, needed, { mode: 'party_scoped' })
    await addCatalogue(world, tenants, TESTS)
  }
  const { child, port } = await world.startApi()
  const load = new Load(tenants)
  const order = (baseUrl: string, count: number): LoadOrder => ({ baseUrls: [baseUrl], what: 'tests', count, connections: CONNECTIONS }) // prettier-ignore
  const own = `http://127.0.0.1:${port}`
  try {
    const cold = await measure(world, load, order(own, needed), child.pid!)
    const list = await (await fetch(`${own}/client/crm/tests?branchID=${tenants[0]!.labId}&corporateUser=${tenants[0]!.corporateId}`, { headers: { authorization: `Bearer ${tenants[0]!.token}` } })).json() // prettier-ignore
    const bare = await startBareApi({ tenants, mysqlUrl: world.mysqlUrl, list })
    const limit = await load
      .run(order(bare.baseUrl, 200))
      .then(() => measure(world, load, order(bare.baseUrl, calls), bare.child.pid!))
      .finally(() => bare.child.kill('SIGKILL'))
    const result = (name: string, { rate, costUs }: Measured, note?: string): Result => ({ name, value: rate, unit: '1/s', limit: limit.rate, costUs, limitCostUs: limit.costUs, ...(note ? { note } : {}) }) // prettier-ignore
    const results: Result[] = []
    for (const [name, form] of Object.entries(FORMS)) {
      await load.run({ ...order(own, tenants.length), ...form.order }, form.status)
      const measured = await measure(world, load, { ...order(own, calls), ...form.order }, child.pid!, form.status)
      results.push(result(name, measured, `${Math.round(measured.bytes / 1024)} KB`))
    }
    return [...results, result('tests_list_after_change', cold)]
  } finally {
    load.close()
    await world.stopDaemon(child)
  }
}

interface Measured {
  rate: number
  /** Of a body. */
  bytes: number
  costUs: Record<string, number>
}

async function measure(world: BenchWorld, load: Load, order: LoadOrder, api: number, status = 200): Promise<Measured> {
  const costs = await startMeter({ api, database: world.databasePid })
  const result = await load.run(order, status)
  return { rate: rateOf(result, order.count), bytes: result.bytes / order.count, costUs: await costs(order.count) }
}
