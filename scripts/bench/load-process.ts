/**
 * The client of the benchmarks, a process of its own. Told over IPC: `{tenants}` once, then orders, each of which it answers with
 * its `LoadResult`.
 *
 * With a rate the requests leave on a fixed schedule, whatever the answers do, and each is timed from when it should have left: a
 * slow answer hides nothing (coordinated omission). Without one, so many are under way all the time.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { Agent, request } from 'undici'
import { machineMs } from './machine-clock.ts'
import type { Tenant } from './tenants.ts'

export interface LoadOrder {
  baseUrls: string[]
  what: 'leads' | 'tests'
  count: number
  connections: number
  ratePerSecond?: number
  headers?: Record<string, string>
  /** Of the tests: ask again with the validator of the last answer. */
  conditional?: boolean
}

export interface LoadResult {
  statuses: Record<number, number>
  startedAtMs: number
  endedAtMs: number
  cpuUs: number
  /** From when each should have left to its answer, in milliseconds. */
  delays: number[]
  bytes: number
  firstFault?: string
}

let tenants: Tenant[] = []
/** Goes on over all orders: a contact serves once a day. */
let leads = 0
const etags = new Map<string, string>()

type Call = { method: 'GET' | 'POST'; path: string; headers: Record<string, string>; body?: string }

/** @param atMs when it should leave; its event carries it to the receiver */
function leadOf({ labId, token }: Tenant, atMs: number): Call {
  const n = leads++
  const body = JSON.stringify({
    branchID: labId,
    integratorID: `at-${atMs.toFixed(3)}-${n}`,
    first_name: 'Asha',
    last_name: 'Kulkarni',
    contact: String(6_000_000_000 + n),
    email: `patient${n}@example.in`,
    gender: 'female',
    age: 41,
    age_type: 'year',
  })
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
  return { method: 'POST', path: '/client/crm/lead/create', headers, body }
}

function testsOf({ labId, token, corporateId }: Tenant, order: LoadOrder): Call {
  const path = `/client/crm/tests?branchID=${labId}&corporateUser=${corporateId}`
  const etag = order.conditional ? etags.get(path) : undefined
  const headers = { authorization: `Bearer ${token}`, ...order.headers, ...(etag ? { 'if-none-match': etag } : {}) }
  return { method: 'GET', path, headers }
}

async function run(order: LoadOrder): Promise<LoadResult> {
  const dispatchers = order.baseUrls.map(() => new Agent({ connections: order.connections, pipelining: 1 }))
  const result: LoadResult = { statuses: {}, startedAtMs: machineMs(), endedAtMs: 0, cpuUs: 0, delays: [], bytes: 0 }
  const cpuBefore = process.cpuUsage()
  let next = 0
  async function call(atMs: number): Promise<void> {
    const n = next++
    const tenant = tenants[n % tenants.length]!
    const { path, ...options } = order.what === 'leads' ? leadOf(tenant, atMs) : testsOf(tenant, order)
    const place = n % order.baseUrls.length
    const answer = await request(order.baseUrls[place] + path, { ...options, dispatcher: dispatchers[place] })
    if (answer.headers.etag && !order.headers) etags.set(path, answer.headers.etag as string)
    if (answer.statusCode >= 400) result.firstFault ??= await answer.body.text()
    else result.bytes += (await answer.body.arrayBuffer()).byteLength
    result.statuses[answer.statusCode] = (result.statuses[answer.statusCode] ?? 0) + 1
    result.delays.push(machineMs() - atMs)
  }
  await (order.ratePerSecond ? onSchedule(call, order.count, order.ratePerSecond) : inLoops(call, order))
  const { user, system } = process.cpuUsage(cpuBefore)
  await Promise.all(dispatchers.map((dispatcher) => dispatcher.close()))
  return { ...result, endedAtMs: machineMs(), cpuUs: user + system }
}

async function inLoops(call: (atMs: number) => Promise<void>, { count, connections }: LoadOrder): Promise<void> {
  let started = 0
  const loop = async () => {
    while (started++ < count) await call(machineMs())
  }
  await Promise.all(Array.from({ length: connections }, loop))
}

async function onSchedule(call: (atMs: number) => Promise<void>, count: number, ratePerSecond: number): Promise<void> {
  const startMs = machineMs() + 20
  const running: Promise<void>[] = []
  for (let n = 0; n < count; n++) {
    const atMs = startMs + (n * 1000) / ratePerSecond
    const waitMs = atMs - machineMs()
    if (waitMs > 1) await sleep(waitMs)
    // A timer may fire up to a millisecond early: such a request is timed from when it leaves.
    running.push(call(Math.min(atMs, machineMs())))
  }
  await Promise.all(running)
}

process.on('message', (message: { tenants: Tenant[] } | LoadOrder) => {
  if ('tenants' in message) {
    tenants = message.tenants
    etags.clear()
    return
  }
  run(message).then(
    (result) => process.send!({ result }),
    (error: Error) => process.send!({ fault: error.stack }),
  )
})
process.on('disconnect', () => process.exit(0))
