/**
 * What the size of the tables costs: claims, the delivery log and the purge over 10,000,000 events with 30,000,000 attempts,
 * beside the same over nearly empty tables.
 */
import { statfs } from 'node:fs/promises'
import { listDeliveries } from '../../src/deliveries/delivery-log-repository.ts'
import { logPageOf } from '../../src/deliveries/delivery-log-rules.ts'
import { listDueDeliveries } from '../../src/deliveries/delivery-queue-repository.ts'
import { findWork } from '../../src/deliveries/work-repository.ts'
import { routeEvents } from '../../src/events/event-routing.ts'
import { monotonicMs } from '../../src/clock.ts'
import { newId } from '../../src/ids.ts'
import { logPurgeSteps } from '../../src/retention/log-retention-repository.ts'
import { cutoffsOf } from '../../src/retention/retention-rules.ts'
import type { Result } from './bench-result.ts'
import type { BenchWorld } from './bench-world.ts'
import { delaysOf } from './traffic.ts'

/** Of the database on the disk for each event, with its three attempts, its log and room to write. */
const BYTES_AN_EVENT = 2000
const EVENTS_A_STATEMENT = 50_000
const LABS = 200
const ROUNDS = 200
const PURGE_ROUNDS = 40
const EVENTS_A_ROUND = 20
const PURGED_AT_ONCE = 25
/** The oldest twentieth has expired. */
const OLDEST_DAYS = 95
/** Between two lines about the writing. */
const PROGRESS_MS = 10_000

/** @throws when the disk can't hold it */
export async function requireDisk(folder: string, events: number): Promise<void> {
  const { bavail, bsize } = await statfs(folder)
  const needed = events * BYTES_AN_EVENT
  const gigabytes = (bytes: number) => (bytes / 1e9).toFixed(1)
  if (bavail * bsize < needed) {
    throw new Error(
      `${events} events need ${gigabytes(needed)} GB in ${folder}, and ${gigabytes(bavail * bsize)} GB are free`,
    )
  }
}

export async function largeTables(world: BenchWorld, events: number): Promise<Result[]> {
  await requireDisk(world.folder, events)
  await world.clear()
  const labIds = Array.from({ length: LABS }, () => newId(world.clock.nowMs()))
  const webhookIds = await world.addWebhooks(labIds.map((_, n) => world.url(`ok/${n}`)), labIds) // prettier-ignore
  await fill(world, labIds, webhookIds, 0, 20_000)
  const small = await measure(world, labIds, webhookIds)
  await fill(world, labIds, webhookIds, 20_000, events)
  await world.database.knex.raw('ANALYZE TABLE events, deliveries, earlier_attempts, delivery_queue')
  const large = await measure(world, labIds, webhookIds)
  return Object.keys(small).map((name) => ({
    name: `tables_10m_${name}_p99`,
    value: large[name]!,
    unit: 'ms',
    limit: small[name]!,
    note: `${events} events`,
  }))
}

/** Ended deliveries with three attempts each, the lab's one webhook in turn, spread over 95 days. */
async function fill(
  world: BenchWorld,
  labIds: string[],
  webhookIds: string[],
  first: number,
  until: number,
): Promise<void> {
  const { knex } = world.database
  const places = labIds.map(() => 'SELECT ? AS n, ? AS lab_id, ? AS webhook_id').join(' UNION ALL ')
  await knex.raw('CREATE TABLE IF NOT EXISTS bench_places (n INT PRIMARY KEY, lab_id CHAR(26) CHARACTER SET ascii COLLATE ascii_bin, webhook_id CHAR(26) CHARACTER SET ascii COLLATE ascii_bin)') // prettier-ignore
  await knex('bench_places').delete()
  await knex.raw(`INSERT INTO bench_places SELECT * FROM (${places}) p`, labIds.flatMap((labId, n) => [n, labId, webhookIds[n]!])) // prettier-ignore
  const startedAtMs = monotonicMs()
  let reportedAtMs = startedAtMs
  for (let from = first; from < until; from += EVENTS_A_STATEMENT) {
    const to = Math.min(until, from + EVENTS_A_STATEMENT) - 1
    const age = `TIMESTAMPADD(SECOND, -${OLDEST_DAYS * 86_400} + FLOOR((x.n - ${first}) * ${OLDEST_DAYS * 86_400 - 3600} / ${until - first}), UTC_TIMESTAMP(3))`
    const rows = `(WITH RECURSIVE c (n) AS (SELECT ${from} UNION ALL SELECT n + 1 FROM c WHERE n < ${to})
      SELECT c.n, CONCAT('01', LPAD(c.n, 24, '0')) AS id, p.lab_id, p.webhook_id FROM c JOIN bench_places p ON p.n = c.n % ${LABS}) x`
    await knex.transaction(async (trx) => {
      const [[row]] = await trx.raw('SELECT VERSION() AS version')
      const depth = /mariadb/i.test(row.version) ? 'max_recursive_iterations' : 'cte_max_recursion_depth'
      await trx.raw(`SET SESSION ${depth} = ${EVENTS_A_STATEMENT}`)
      await trx.raw(
        `INSERT INTO events (id, account_id, lab_id, type, recorded_at, subject_id)
         SELECT x.id, ?, x.lab_id, 'lead.created', ${age}, x.id FROM ${rows}`,
        [world.accountId],
      )
      await trx.raw(
        `INSERT INTO deliveries (webhook_id, event_id, status, attempts, ended_at, seq, started_at, duration_ms, class, http_status)
         SELECT x.webhook_id, x.id, 'delivered', 3, ${age}, x.n * 3 + 3, ${age}, 12, 'success', 204 FROM ${rows}`,
      )
      for (const n of [1, 2]) {
        await trx.raw(
          `INSERT INTO earlier_attempts (webhook_id, event_id, n, seq, started_at, recorded_at, duration_ms, class, status)
           SELECT x.webhook_id, x.id, ${n}, x.n * 3 + ${n}, ${age}, ${age}, 12, 'http_status', 503 FROM ${rows}`,
        )
      }
    })
    const done = to + 1
    if (done === until || monotonicMs() - reportedAtMs >= PROGRESS_MS) {
      reportedAtMs = monotonicMs()
      const rate = ((done - first) / (reportedAtMs - startedAtMs)) * 1000
      process.stderr.write(`bench: ${done} of ${until} events written, ${Math.round(rate)}/s, ${Math.round((until - done) / rate)} s to go\n`) // prettier-ignore
    }
  }
}

/** 99th percentiles, in milliseconds. */
async function measure(world: BenchWorld, labIds: string[], webhookIds: string[]): Promise<Record<string, number>> {
  const { database, clock } = world
  const claims: number[] = []
  const lists: number[] = []
  for (let round = 0; round < ROUNDS; round++) {
    const place = round % LABS
    await world.addEvents(EVENTS_A_ROUND, true, labIds[place]!)
    claims.push(
      await timed(async () => {
        const now = clock.now()
        await findWork(database.knex, now, 200)
        await routeEvents(database.batch, now, 500)
        await listDueDeliveries(database.knex, {
          webhookId: webhookIds[place]!,
          times: { now, until: now },
          after: undefined,
          limit: 100,
        })
      }),
    )
    await database.knex('delivery_queue').where({ webhook_id: webhookIds[place]! }).delete()
    const subject = { lab: { id: labIds[place]!, accountId: world.accountId }, scope: 'whole_lab' as const }
    lists.push(await timed(() => listDeliveries(database.knex, subject, logPageOf({ limit: 50 }))))
    lists.push(await timed(() => listDeliveries(database.knex, subject, logPageOf({ limit: 50, status: 'exhausted' }))))
  }
  return { claim: delaysOf(claims).p99, log_list: delaysOf(lists).p99, purge: delaysOf(await purges(world)).p99 }
}

async function purges({ database, clock }: BenchWorld): Promise<number[]> {
  const steps = logPurgeSteps(cutoffsOf(clock.now(), { payloadRetentionDays: 30, logRetentionDays: 90 }))
  const step = steps.find(({ name }) => name === 'deliveries')!
  const took: number[] = []
  let position: Awaited<ReturnType<typeof step.remove>>['position']
  for (let round = 0; round < PURGE_ROUNDS; round++) {
    took.push(
      await timed(async () => {
        const batch = await database.transaction((trx) => step.remove(trx, position, PURGED_AT_ONCE))
        position = batch.position
        if (batch.removed === 0) throw new Error('there was nothing to purge')
      }),
    )
  }
  return took
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const startedAtMs = monotonicMs()
  await work()
  return monotonicMs() - startedAtMs
}
