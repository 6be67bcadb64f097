import { afterAll, beforeAll, expect, test } from 'vitest'
import { purgeExpired } from '../../daemon/jobs/purge-expired.ts'
import { monotonicMs } from '../../src/clock.ts'
import { newId } from '../../src/ids.ts'
import { createLogger } from '../../src/logger.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { TestClock } from '../support/test-clock.ts'

/** In each of five rounds. The full size: PURGE_EVENTS=1000000 */
const EVENTS = Number(process.env.PURGE_EVENTS ?? 5000)
/** Too young to go. */
const KEPT_EVENTS = 500
const ROUNDS = 5
const ROWS_AT_A_TIME = 1000
const DAY_MS = 86_400_000
const NOW_MS = Date.parse('2026-11-20T10:00:00Z')
const TABLES = ['events', 'event_bodies', 'deliveries', 'earlier_attempts']
/** Measured: 10 to 40 ms. A machine that is busy with other tests makes everybody wait, with or without a purge. */
const LONGEST_WAIT_MS = 1000

let db: TestDatabase
beforeAll(async () => {
  db = await openTestDatabase()
})
afterAll(() => db.close())

const knex = () => db.database.knex
const webhookIds = Array.from({ length: 20 }, (_, n) => newId(n))
const ACCOUNT_ID = newId(1000)
const LAB_ID = newId(1001)
const BODY = Buffer.alloc(700, 'x')

/** Events that were delivered at the second attempt, evenly from one time to another. */
async function insertHistory(count: number, fromMs: number, toMs: number): Promise<void> {
  for (let first = 0; first < count; first += ROWS_AT_A_TIME) {
    const rows = Array.from({ length: Math.min(ROWS_AT_A_TIME, count - first) }, (_, n) => {
      const at = new Date(fromMs + ((toMs - fromMs) * (first + n)) / count)
      return { id: newId(at.getTime()), at, webhookId: webhookIds[n % webhookIds.length]!, seq: first + n + 1 }
    })
    await knex()('events').insert(
      rows.map(({ id, at }) => ({
        id,
        account_id: ACCOUNT_ID,
        lab_id: LAB_ID,
        type: 'lead.created',
        recorded_at: at,
        subject_id: id,
      })),
    )
    await knex()('event_bodies').insert(rows.map(({ id }) => ({ event_id: id, body: BODY })))
    await knex()('deliveries').insert(
      rows.map(({ id, at, webhookId }) => ({
        webhook_id: webhookId,
        event_id: id,
        status: 'delivered',
        attempts: 2,
        ended_at: at,
      })),
    )
    await knex()('earlier_attempts').insert(
      rows.flatMap(({ id, at, webhookId, seq }) =>
        [1, 2].map((n) => ({
          webhook_id: webhookId,
          event_id: id,
          n,
          seq: 2 * seq + n,
          started_at: at,
          recorded_at: at,
          duration_ms: 5,
          class: n === 1 ? 'status' : 'ok',
          status: n === 1 ? 500 : 204,
        })),
      ),
    )
  }
}

async function bytesOfTables(): Promise<number> {
  await knex().raw(`ANALYZE TABLE ${TABLES.join(', ')}`)
  const [rows] = await knex().raw(
    `SELECT SUM(data_length + index_length) AS bytes FROM information_schema.tables
     WHERE table_schema = DATABASE() AND table_name IN (?)`,
    [TABLES],
  )
  return Number(rows[0].bytes)
}

const countRows = async (table: string) => Number((await knex()(table).count({ n: '*' }).first())!.n)

/** From another connection: what a request or the recorder would wait for, until told to stop. */
function probe(): { stop(): Promise<number[]> } {
  let stopped = false
  const waits: number[] = []
  const done = (async () => {
    while (!stopped) {
      const row = await knex()('deliveries').orderBy('ended_at').first('webhook_id', 'event_id')
      if (!row) break
      const startedAtMs = monotonicMs()
      // The oldest row is the one that the purge is at.
      await knex().transaction((trx) =>
        trx('deliveries').where({ webhook_id: row.webhook_id, event_id: row.event_id }).forUpdate().first(),
      )
      waits.push(monotonicMs() - startedAtMs)
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
  })()
  return {
    stop: async () => {
      stopped = true
      await done
      return waits
    },
  }
}

interface Cycle {
  fullBytes: number
  leftBytes: number
  longestMs: number
}

/** Events come, and a purge takes them when their time is over. */
async function cycle(clock: TestClock): Promise<Cycle> {
  clock.advance(3_600_000)
  await insertHistory(EVENTS, clock.nowMs() - 200 * DAY_MS, clock.nowMs() - 91 * DAY_MS)
  const fullBytes = await bytesOfTables()
  // Each of a daemon that has just begun: it has not seen the clock before it was set forward.
  const purge = () =>
    purgeExpired({
      database: db.database,
      clock,
      log: createLogger('daemon', 'silent'),
      settings: { payloadRetentionDays: 30, logRetentionDays: 90 },
      stopping: () => false,
    })()
  const probing = probe()
  const startedAtMs = monotonicMs()
  await purge()
  const tookMs = Math.round(monotonicMs() - startedAtMs)
  const waits = await probing.stop()
  // What the probe had locked at that moment was left to the next purge.
  clock.advance(3_600_000)
  await purge()
  expect(waits.length).toBeGreaterThan(20)
  const longestMs = Math.max(...waits)
  // The server gives the pages of deleted rows back in the background, but for some that it took in advance: whole extents.
  let leftBytes = await bytesOfTables()
  await expect
    .poll(async () => (leftBytes = await bytesOfTables()), { timeout: 30_000, interval: 200 })
    .toBeLessThan(fullBytes * 0.6)
  const mb = (bytes: number) => `${(bytes / 1e6).toFixed(1)} MB`
  console.log(
    `${EVENTS} events purged in ${tookMs} ms: ${mb(fullBytes)} -> ${mb(leftBytes)}; the longest of ${waits.length} waits: ${longestMs.toFixed(1)} ms`,
  )
  return { fullBytes, leftBytes, longestMs }
}

test(
  `after ${EVENTS} events and their expiry the tables are back to their size, and nobody has waited for it`,
  { timeout: 200_000 + EVENTS * 35 },
  async () => {
    const clock = new TestClock(new Date(NOW_MS).toISOString())
    await insertHistory(KEPT_EVENTS, NOW_MS - 20 * DAY_MS, NOW_MS)
    const rounds: Cycle[] = []
    while (rounds.length < ROUNDS) rounds.push(await cycle(clock))
    for (const table of ['events', 'event_bodies', 'deliveries']) {
      expect(await countRows(table), table).toBe(KEPT_EVENTS)
    }
    expect(await countRows('attempts')).toBe(2 * KEPT_EVENTS)
    // What was given back is used again. The server takes whole extents in advance, up to half of a small table; five rounds
    // that use nothing again need three times the room of one.
    expect(rounds.at(-1)!.fullBytes).toBeLessThan(rounds[0]!.fullBytes * 2)
    expect(Math.max(...rounds.map((round) => round.longestMs))).toBeLessThan(LONGEST_WAIT_MS)
  },
)
