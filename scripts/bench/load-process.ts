/**
 * The client of the benchmarks, a process of its own. Told over IPC: `{tenants}` once, then orders, each of which it answers with
 * its `LoadResult`.
 *
 * With a rate the requests leave on a fixed schedule, whatever the answers do, and each is timed from when it should have left: a
 * slow answer hides nothing (coordinated omission). Without one, so many are under way all the time.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { Agent, request } from 'undici'
import { seededRandom } from '../crash/seeded-random.ts'
import { machineMs } from './machine-clock.ts'
import type { Tenant } from './tenants.ts'

export interface LoadOrder {
  baseUrls: string[]
  /** `mixed`: leads, and among them a list of webhooks for every fourth call, as the seed says. */
  what: 'leads' | 'tests' | 'mixed'
  seed?: number
  /** What became of each call: `LoadResult.told`. */
  tells?: boolean
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
  told?: Told
}

/** Of calls whose answers differ. */
export interface Told {
  /** Of those that were answered with 200, as `delays`. */
  acceptedDelays: number[]
  leadIds: string[]
  /** The time that the latest request left after it should have, in milliseconds. */
  latestMs: number
  /** Refusals that have not the error shape, a status of 503, or when to come again; the first few. */
  misshapen: string[]
  /** How many of each code, and how long the slowest of them took. */
  refusals: Record<string, { count: number; slowestMs: number }>
}

/** As much as shows what is wrong. */
const MOST_MISSHAPEN = 5

let tenants: Tenant[] = []
/** Goes on over all orders: a contact serves once a day. */
let leads = 0
const etags = new Map<string, string>()

function webhooksOf({ labId, token }: Tenant): Call {
  const path = `/client/events/getAllEvents?labID=${labId}`
  return { method: 'GET', path, headers: { authorization: `Bearer ${token}` } }
}

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

function callOf(tenant: Tenant, order: LoadOrder, atMs: number, random: () => number): Call {
  if (order.what === 'tests') return testsOf(tenant, order)
  return order.what === 'mixed' && random() < 0.25 ? webhooksOf(tenant) : leadOf(tenant, atMs)
}

function tell(told: Told, status: number, headers: Record<string, unknown>, text: string, delayMs: number): void {
  if (status === 200) {
    told.acceptedDelays.push(delayMs)
    const leadId = /"leadId":"([^"]+)"/.exec(text)?.[1]
    if (leadId) told.leadIds.push(leadId)
    return
  }
  const refusal = (told.refusals[/"code":"([a-z_]+)"/.exec(text)?.[1] ?? 'none'] ??= { count: 0, slowestMs: 0 })
  refusal.count += 1
  refusal.slowestMs = Math.max(refusal.slowestMs, delayMs)
  const shape =
    /^\{"success":false,"status":503,"message":"Service Unavailable","error":\{"details":"[^"]+","code":"[a-z_]+"\},/
  const isSound = status === 503 && /^[1-9]\d*$/.test(String(headers['retry-after'])) && shape.test(text)
  if (!isSound && told.misshapen.length < MOST_MISSHAPEN) told.misshapen.push(`${status} ${text.slice(0, 200)}`)
}

/** Of orders that keep their connections: opened before, as those of a proxy are, and not while the load is on. */
const kept = new Map<string, Agent>()

async function keptAgent(baseUrl: string, connections: number): Promise<Agent> {
  let dispatcher = kept.get(baseUrl)
  if (dispatcher) return dispatcher
  dispatcher = new Agent({ connections, pipelining: 1 })
  kept.set(baseUrl, dispatcher)
  const isAsked = Array.from({ length: connections }, async () => {
    const { body } = await request(`${baseUrl}/livez`, { dispatcher })
    await body.dump()
  })
  await Promise.all(isAsked)
  return dispatcher
}

async function run(order: LoadOrder): Promise<LoadResult> {
  const { baseUrls, connections } = order
  const dispatchers = order.tells
    ? await Promise.all(baseUrls.map((baseUrl) => keptAgent(baseUrl, connections)))
    : baseUrls.map(() => new Agent({ connections, pipelining: 1 }))
  const result: LoadResult = { statuses: {}, startedAtMs: machineMs(), endedAtMs: 0, cpuUs: 0, delays: [], bytes: 0 }
  const told: Told = { acceptedDelays: [], leadIds: [], latestMs: 0, misshapen: [], refusals: {} }
  if (order.tells) result.told = told
  const random = seededRandom(order.seed ?? 1)
  const cpuBefore = process.cpuUsage()
  let next = 0
  async function call(atMs: number): Promise<void> {
    const n = next++
    const tenant = tenants[n % tenants.length]!
    const { path, ...options } = callOf(tenant, order, atMs, random)
    const place = n % order.baseUrls.length
    told.latestMs = Math.max(told.latestMs, machineMs() - atMs)
    const answer = await request(order.baseUrls[place] + path, { ...options, dispatcher: dispatchers[place] })
    if (answer.headers.etag && !order.headers) etags.set(path, answer.headers.etag as string)
    const bytes = Buffer.from(await answer.body.arrayBuffer())
    if (answer.statusCode >= 400) result.firstFault ??= bytes.toString()
    else result.bytes += bytes.byteLength
    result.statuses[answer.statusCode] = (result.statuses[answer.statusCode] ?? 0) + 1
    const delayMs = machineMs() - atMs
    result.delays.push(delayMs)
    if (order.tells) tell(told, answer.statusCode, answer.headers, bytes.toString(), delayMs)
  }
  const callOnce = order.tells
    ? (atMs: number) =>
        call(atMs).catch((error: Error) => {
          // A connection that breaks, or an answer that never comes, is one of the things that the service must not do.
          result.statuses[0] = (result.statuses[0] ?? 0) + 1
          tell(told, 0, {}, error.message, machineMs() - atMs)
        })
    : call
  await (order.ratePerSecond ? onSchedule(callOnce, order.count, order.ratePerSecond) : inLoops(callOnce, order))
  const { user, system } = process.cpuUsage(cpuBefore)
  if (!order.tells) await Promise.all(dispatchers.map((dispatcher) => dispatcher.close()))
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
