/**
 * `make bench-limits`: answers just before and just after ten seconds, bodies without an end, and rows that nobody can use.
 *
 *     node scripts/crash/bench-limits.ts [--n 200] [--poison 100] [--seconds 30]
 *
 * Every answer after 9.8 s is a success, every one after 10.2 s a failure, and what is on record says why; a 2xx frees its slot
 * two seconds after its head, whatever follows: a tenth as many endpoints, and the next request of each begins by then; webhooks
 * whose rows are broken are named once and trouble nobody else. Takes about two minutes. Exit 1 when one is off.
 */
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { monotonicMs } from '../../src/clock.ts'
import { until, type CrashArena, type Tenant } from './crash-arena.ts'
import { pause, runBench, shareOf, withCrashStage, type CrashStage } from './crash-stage.ts'
import { usableArguments, wholeNumber } from '../whole-number.ts'
import { startTimedEndpoint, type TimedEndpoint } from './timed-endpoint.ts'

const LIMIT_MS = 10_000
/** From the head to the end of the connection; the clock of a deadline comes round each tenth of a second. */
const BODY_MS = 2500
/** Connections are opened one after the other: a handshake must not cost what the limit leaves. */
const GAP_MS = 50
/** Of one webhook at first. */
const FIRST_WINDOW = 2
const HEAD_MS = 1000
const HEALTHY = 20
/** One before its row is broken and one behind it. */
const EVENTS_OF_POISONED = 2
const UNNOTICED_MS = 200
const FACTOR = 2

const [COUNT, POISONED, SECONDS] = usableArguments('bench-limits', () => {
  const { values } = parseArgs({
    options: {
      n: { type: 'string', default: '200' },
      poison: { type: 'string', default: '100' },
      seconds: { type: 'string', default: '30' },
    },
  })
  return [
    wholeNumber('n', values.n, 1, 10_000),
    wholeNumber('poison', values.poison, 6, 10_000),
    wholeNumber('seconds', values.seconds, 3, 3600),
  ] as const
})
const say = (line: string) => process.stderr.write(`bench-limits: ${line}\n`)

interface Timed {
  webhook: string
  kind: string
}

/** So many events for a webhook of each kind in turn. @returns when each attempt is recorded */
async function attemptEach(
  { arena }: CrashStage,
  endpoint: TimedEndpoint,
  kinds: string[],
  n: number,
  events = 1,
): Promise<Timed[]> {
  const timed: Timed[] = []
  for (let index = 0; index < n; index++) {
    for (const kind of kinds) {
      const tenant = await arena.addTenant()
      const webhook = await arena.addWebhook(tenant, (id) => `${endpoint.url}/${kind}/${id}`)
      for (let m = 0; m < events; m++) await arena.addEvent(tenant)
      timed.push({ webhook, kind })
      await pause(GAP_MS)
    }
  }
  const ids = timed.map(({ webhook }) => webhook)
  const count = async () => Number((await arena.database.knex('attempts').whereIn('webhook_id', ids).where({ n: 1 }).count({ n: '*' }).first())!.n) // prettier-ignore
  await until('every attempt is recorded', async () => (await count()) >= timed.length * events, 60_000 + n * 1000)
  return timed
}

async function tenSeconds(stage: CrashStage, endpoint: TimedEndpoint): Promise<boolean> {
  const [before, after] = ['head/9800', 'head/10200']
  say(`${COUNT} answers after 9.8 s and as many after 10.2 s …`)
  const timed = await attemptEach(stage, endpoint, [before, after], COUNT)
  const kinds = new Map(timed.map(({ webhook, kind }) => [webhook, kind]))
  const rows =
    (await stage.arena.database.knex('attempts').where({ n: 1 }).select('webhook_id', 'class', 'duration_ms')) // prettier-ignore
      .filter((row) => kinds.has(row.webhook_id))
  const count = (kind: string, name: string) => rows.filter((row) => kinds.get(row.webhook_id) === kind && row.class === name).length // prettier-ignore
  // In whole milliseconds: at ten seconds sharp either may stand.
  const off = rows.filter(({ class: name, duration_ms: ms }) => (name === 'ok' ? ms > LIMIT_MS : ms < LIMIT_MS)).length
  console.log(
    `after 9.8 s: ok=${count(before, 'ok')} failed=${COUNT - count(before, 'ok')}   ` +
      `after 10.2 s: timeout=${count(after, 'timeout')} others=${COUNT - count(after, 'timeout')}   ` +
      `class and duration disagree=${off}`,
  )
  return count(before, 'ok') === COUNT && count(after, 'timeout') === COUNT && off === 0
}

async function endlessBodies(stage: CrashStage, endpoint: TimedEndpoint): Promise<boolean> {
  const n = Math.ceil(COUNT / 10)
  say(`${n} bodies without an end …`)
  const timed = await attemptEach(stage, endpoint, [`flood/${HEAD_MS}`], n, FIRST_WINDOW + 1)
  const ids = timed.map(({ webhook }) => webhook)
  const ok = await stage.arena.database.knex('attempts').whereIn('webhook_id', ids).where({ class: 'ok' })
  const sent = n * (FIRST_WINDOW + 1)
  await until('every connection is closed', () => endpoint.closedAfterMs.length >= sent)
  const slowest = Math.max(...endpoint.closedAfterMs)
  // The first ones fill the window: the next one begins when the head of the first is that old.
  const freeAfterMs = [...endpoint.cameAtMs]
    .filter(([path]) => path.startsWith('/flood/'))
    .map(([, came]) => came[FIRST_WINDOW]! - came[0]! - HEAD_MS)
  const last = Math.max(...freeAfterMs)
  console.log(
    `endless bodies: ok=${ok.length} of ${sent}, connection closed at most ${Math.round(slowest)} ms after the head, slot free at most ${Math.round(last)} ms after it`,
  )
  return ok.length === sent && slowest <= BODY_MS && last <= BODY_MS
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

/** Those that the daemon names in its log, once in so long; those of an endpoint say so in each attempt; `make doctor` finds the last. */
const NAMED_IN_LOG = ['secret does not open', 'no secret']
const SAID_BY_ATTEMPTS = ['endpoint is no URL', 'endpoint is empty']
const NAMED_AGAIN_AFTER_MS = 60_000

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
function linesOf(folder: string, webhooks: Iterable<string>): Map<string, number> {
  const counts = new Map([...webhooks].map((webhook) => [webhook, 0]))
  for (const file of readdirSync(folder).filter((name) => name.startsWith('daemon'))) {
    for (const line of readFileSync(join(folder, file), 'utf8').split('\n').filter(Boolean)) {
      const { webhookId, level } = JSON.parse(line)
      if (level >= 40 && counts.has(webhookId)) counts.set(webhookId, counts.get(webhookId)! + 1)
    }
  }
  return counts
}

/** Attempts on record that say that the endpoint is no URL. */
async function attemptsOf({ database }: CrashArena, webhooks: string[]): Promise<Map<string, number>> {
  const rows = await database.knex('attempts').whereIn('webhook_id', webhooks).where({ class: 'protocol' }).groupBy('webhook_id').select('webhook_id').count({ n: '*' }) // prettier-ignore
  return new Map(rows.map((row: Record<string, unknown>) => [String(row.webhook_id), Number(row.n)]))
}

async function poisonRows(stage: CrashStage, isAlive: () => boolean): Promise<boolean> {
  const { arena, receiver, scratch } = stage
  const healthy: Tenant[] = []
  for (let n = 0; n < HEALTHY; n++) {
    healthy.push(await arena.addTenant())
    await arena.addWebhook(healthy[n]!, receiver.urlOf)
  }
  const seconds = Math.ceil(SECONDS / 3)
  await measure(stage, healthy, 2)
  const quiet = shareOf(await measure(stage, healthy, seconds), 0.99)
  const kinds = Object.keys(POISONS)
  const startedAtMs = monotonicMs()
  const poisoned = new Map<string, string>()
  say(`${POISONED} webhooks with rows that nobody can use …`)
  for (let n = 0; n < POISONED; n++) {
    const tenant = await arena.addTenant()
    const webhook = await arena.addWebhook(tenant, receiver.urlOf)
    const event = await arena.addEvent(tenant)
    const kind = kinds[n % kinds.length]!
    await POISONS[kind]!(stage, webhook, event)
    await arena.addEvent(tenant)
    poisoned.set(webhook, kind)
  }
  const p99 = shareOf(await measure(stage, healthy, seconds), 0.99)
  const lines = linesOf(join(scratch, 'logs'), poisoned.keys())
  const ofKinds = (names: string[]) => [...poisoned].filter(([, kind]) => names.includes(kind)).map(([id]) => id)
  const most = Math.max(0, ...lines.values())
  const unnamed = ofKinds(NAMED_IN_LOG).filter((id) => lines.get(id) === 0).length
  const said = await attemptsOf(arena, ofKinds(SAID_BY_ATTEMPTS))
  // Each of their events was tried once, and the next try is a day away.
  const unsaid = ofKinds(SAID_BY_ATTEMPTS).filter((id) => !said.get(id)).length
  const mostSaid = Math.max(0, ...said.values())
  const mayBeNamed = 1 + Math.floor((monotonicMs() - startedAtMs) / NAMED_AGAIN_AFTER_MS)
  const limit = Math.max(FACTOR * quiet, UNNOTICED_MS)
  console.log(
    `poisoned webhooks=${poisoned.size} daemon alive=${isAlive()} lines for one of them at most=${most} without one that must have one=${unnamed} ` +
      `attempts of one without a URL at most=${mostSaid} without any=${unsaid} ` +
      `healthy ones: p99 ${Math.round(quiet)} ms before, ${Math.round(p99)} ms beside them (at most ${Math.round(limit)})`,
  )
  return isAlive() && most <= mayBeNamed && unnamed + unsaid === 0 && mostSaid <= EVENTS_OF_POISONED && p99 <= limit
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
