/**
 * `make bench-limits`: answers just before and just after ten seconds, bodies without an end, and rows that nobody can use.
 *
 *     node scripts/crash/bench-limits.ts [--n 200] [--poison 100] [--seconds 30]
 *
 * Every answer after 9.8 s is a success, every one after 10.2 s a failure, and what is on record says why; a 2xx frees its slot
 * two seconds after its head, whatever follows; webhooks whose rows are broken are said once and trouble nobody else. Takes
 * about two minutes. Exit 1 when one is off.
 */
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { monotonicMs } from '../../src/clock.ts'
import { until, type Tenant } from './crash-arena.ts'
import { pause, runBench, shareOf, withCrashStage, type CrashStage } from './crash-stage.ts'
import { startTimedEndpoint, type TimedEndpoint } from './timed-endpoint.ts'

const LIMIT_MS = 10_000
/** From the head to the end of the connection; the clock of a deadline comes round each tenth of a second. */
const BODY_MS = 2500
/** Connections are opened one after the other: a handshake must not cost what the limit leaves. */
const GAP_MS = 50
const HEALTHY = 20
const UNNOTICED_MS = 200
const FACTOR = 2

const { values } = parseArgs({
  options: {
    n: { type: 'string', default: '200' },
    poison: { type: 'string', default: '100' },
    seconds: { type: 'string', default: '30' },
  },
})
const say = (line: string) => process.stderr.write(`bench-limits: ${line}\n`)

interface Timed {
  webhook: string
  kind: string
}

/** One event for a webhook of each kind in turn. @returns when each attempt is recorded */
async function attemptEach(
  { arena }: CrashStage,
  endpoint: TimedEndpoint,
  kinds: string[],
  n: number,
): Promise<Timed[]> {
  const timed: Timed[] = []
  for (let index = 0; index < n; index++) {
    for (const kind of kinds) {
      const tenant = await arena.addTenant()
      const webhook = await arena.addWebhook(tenant, (id) => `${endpoint.url}/${kind}/${id}`)
      await arena.addEvent(tenant)
      timed.push({ webhook, kind })
      await pause(GAP_MS)
    }
  }
  const ids = timed.map(({ webhook }) => webhook)
  const count = async () => Number((await arena.database.knex('attempts').whereIn('webhook_id', ids).where({ n: 1 }).count({ n: '*' }).first())!.n) // prettier-ignore
  await until('every attempt is recorded', async () => (await count()) >= timed.length, 60_000 + n * 1000)
  return timed
}

async function tenSeconds(stage: CrashStage, endpoint: TimedEndpoint): Promise<boolean> {
  const [before, after] = ['head/9800', 'head/10200']
  say(`${values.n} answers after 9.8 s and as many after 10.2 s …`)
  const timed = await attemptEach(stage, endpoint, [before, after], Number(values.n))
  const kinds = new Map(timed.map(({ webhook, kind }) => [webhook, kind]))
  const rows =
    (await stage.arena.database.knex('attempts').where({ n: 1 }).select('webhook_id', 'class', 'duration_ms')) // prettier-ignore
      .filter((row) => kinds.has(row.webhook_id))
  const count = (kind: string, name: string) => rows.filter((row) => kinds.get(row.webhook_id) === kind && row.class === name).length // prettier-ignore
  // In whole milliseconds: at ten seconds sharp either may stand.
  const off = rows.filter(({ class: name, duration_ms: ms }) => (name === 'ok' ? ms > LIMIT_MS : ms < LIMIT_MS)).length
  console.log(
    `after 9.8 s: ok=${count(before, 'ok')} failed=${Number(values.n) - count(before, 'ok')}   ` +
      `after 10.2 s: timeout=${count(after, 'timeout')} others=${Number(values.n) - count(after, 'timeout')}   ` +
      `class and duration disagree=${off}`,
  )
  return count(before, 'ok') === Number(values.n) && count(after, 'timeout') === Number(values.n) && off === 0
}

async function endlessBodies(stage: CrashStage, endpoint: TimedEndpoint): Promise<boolean> {
  const n = Math.ceil(Number(values.n) / 10)
  say(`${n} bodies without an end …`)
  const timed = await attemptEach(stage, endpoint, ['flood/1000'], n)
  const ids = timed.map(({ webhook }) => webhook)
  const ok = await stage.arena.database.knex('attempts').whereIn('webhook_id', ids).where({ class: 'ok' })
  await until('every connection is closed', () => endpoint.closedAfterMs.length >= n)
  const slowest = Math.max(...endpoint.closedAfterMs)
  console.log(
    `endless bodies: ok=${ok.length} of ${n}, connection closed at most ${Math.round(slowest)} ms after the head`,
  )
  return ok.length === n && slowest <= BODY_MS
}

/** What can be wrong with a row, by hand or by a restore that went wrong. */
const POISONS: Record<string, (stage: CrashStage, webhook: string, event: string) => Promise<unknown>> = {
  'endpoint is no URL': ({ arena }, id) => arena.database.knex('webhooks').where({ id }).update({ endpoint: 'no url at all' }), // prettier-ignore
  'endpoint is empty': ({ arena }, id) => arena.database.knex('webhooks').where({ id }).update({ endpoint: '' }),
  'secret does not open': ({ arena }, id) => arena.database.knex('webhook_secrets').where({ webhook_id: id }).update({ sealed: Buffer.alloc(60) }), // prettier-ignore
  'no secret': ({ arena }, id) => arena.database.knex('webhook_secrets').where({ webhook_id: id }).delete(),
  'unknown event': ({ arena }, id) => arena.database.knex('webhook_events').where({ webhook_id: id }).update({ event_type: 'no.such_event' }), // prettier-ignore
  'event without a body': ({ arena }, _id, event) => arena.database.knex('event_bodies').where({ event_id: event }).delete(), // prettier-ignore
}

/** An event a second for each. @returns the times from the event to its receipt, sorted, in ms */
async function measure({ arena, receiver }: CrashStage, tenants: Tenant[], seconds: number): Promise<number[]> {
  const atMs = new Map<string, number>()
  for (let n = 0; n < seconds * tenants.length; n++) {
    atMs.set(await arena.addEvent(tenants[n % tenants.length]!), monotonicMs())
    await pause(1000 / tenants.length)
  }
  const arrived = () => receiver.receipts.filter(({ event }) => atMs.has(event))
  await until('they are delivered', () => arrived().length >= atMs.size)
  return arrived().map((one) => one.atMs - atMs.get(one.event)!).sort((a, b) => a - b) // prettier-ignore
}

/** Lines of the daemon's log that name each of them, but for the plain record of attempts. */
function linesOf(folder: string, webhooks: Set<string>): number[] {
  const counts = new Map<string, number>()
  for (const file of readdirSync(folder).filter((name) => name.startsWith('daemon'))) {
    for (const line of readFileSync(join(folder, file), 'utf8').split('\n').filter(Boolean)) {
      const { webhookId, level } = JSON.parse(line)
      if (level >= 40 && webhooks.has(webhookId)) counts.set(webhookId, (counts.get(webhookId) ?? 0) + 1)
    }
  }
  return [...counts.values()]
}

async function poisonRows(stage: CrashStage, isAlive: () => boolean): Promise<boolean> {
  const { arena, receiver, scratch } = stage
  const healthy: Tenant[] = []
  for (let n = 0; n < HEALTHY; n++) {
    healthy.push(await arena.addTenant())
    await arena.addWebhook(healthy[n]!, receiver.urlOf)
  }
  const seconds = Math.ceil(Number(values.seconds) / 3)
  await measure(stage, healthy, 2)
  const quiet = shareOf(await measure(stage, healthy, seconds), 0.99)
  const kinds = Object.keys(POISONS)
  const poisoned = new Set<string>()
  say(`${values.poison} webhooks with rows that nobody can use …`)
  for (let n = 0; n < Number(values.poison); n++) {
    const tenant = await arena.addTenant()
    const webhook = await arena.addWebhook(tenant, receiver.urlOf)
    const event = await arena.addEvent(tenant)
    await POISONS[kinds[n % kinds.length]!]!(stage, webhook, event)
    await arena.addEvent(tenant)
    poisoned.add(webhook)
  }
  const p99 = shareOf(await measure(stage, healthy, seconds), 0.99)
  const most = Math.max(0, ...linesOf(join(scratch, 'logs'), poisoned))
  const limit = Math.max(FACTOR * quiet, UNNOTICED_MS)
  console.log(
    `poisoned webhooks=${poisoned.size} daemon alive=${isAlive()} lines for one of them at most=${most} ` +
      `healthy ones: p99 ${Math.round(quiet)} ms before, ${Math.round(p99)} ms beside them (at most ${Math.round(limit)})`,
  )
  return isAlive() && most <= 2 && p99 <= limit
}

runBench('bench-limits', () =>
  withCrashStage(say, async (stage) => {
    const endpoint = await startTimedEndpoint(stage.server.tls)
    const daemon = await stage.arena.startDaemon({ RETRY_SCHEDULE: '86400' })
    let alive = true
    void daemon.service.ended.then(() => (alive = false))
    try {
      const results = [
        await poisonRows(stage, () => alive),
        await endlessBodies(stage, endpoint),
        await tenSeconds(stage, endpoint),
      ]
      return results.every(Boolean)
    } finally {
      endpoint.close()
    }
  }),
)
