/**
 * What lanes read must not depend on the server's statistics. Where thousands of copies had just been queued for each of several lanes,
 * MariaDB read all bodies for each lane that it read together with others: seconds, in which these sent nothing.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import {
  copiesStatement,
  listBodies,
  listDueDeliveries,
  listDueKeys,
  listDueOfSeveral,
  listWaitingUpTo,
} from '../../src/deliveries/delivery-queue-repository.ts'
import { newId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { StatementRecorder } from '../support/statement-recorder.ts'

const LANES = 10
const EVENTS = 3000
const ROWS = 20

let db: TestDatabase
const recorder = new StatementRecorder()
const lanes = Array.from({ length: LANES }, () => newId(0))
const events = Array.from({ length: EVENTS }, (_, n) => newId(n))
const DUE_AT = new Date('2026-11-01T00:00:00Z')

beforeAll(async () => {
  db = await openTestDatabase()
  const { knex } = db.database
  // Their statistics stay those of empty tables.
  for (const table of ['event_bodies', 'delivery_queue']) {
    await knex.raw('ALTER TABLE ?? STATS_PERSISTENT = 1, STATS_AUTO_RECALC = 0', [table])
    await knex.raw('TRUNCATE TABLE ??', [table])
  }
  await knex.batchInsert('event_bodies', events.map((id) => ({ event_id: id, body: '{}' })), 500) // prettier-ignore
  for (const id of lanes) {
    await knex.raw(
      'INSERT INTO delivery_queue (webhook_id, due_at, event_id, epoch) SELECT ?, ?, event_id, 1 FROM event_bodies',
      [id, DUE_AT],
    )
  }
})
afterAll(async () => {
  recorder.stop()
  // The copies have neither events nor webhooks, which the last look at the database would find.
  await db.database.knex('delivery_queue').truncate()
  await db.database.knex('event_bodies').truncate()
  await db.close()
})

/** Table and key of each step, of all parts of a union. */
async function stepsOf(sql: string): Promise<Set<string>> {
  const [plan] = await db.database.knex.raw(`EXPLAIN FORMAT=TRADITIONAL ${sql.replaceAll('?', '\\?')}`)
  const tables = (plan as Record<string, string>[]).filter((row) => /^[qb]$/.test(row.table!))
  const each = sql.includes('JOIN') ? 2 : 1
  return new Set(tables.map((row, n) => `${n % each ? 'then' : 'first'} ${row.table} by ${row.key}`))
}

const withoutHints = (sql: string) => sql.replaceAll('STRAIGHT_JOIN', 'JOIN').replaceAll(/FORCE INDEX \(\w+\)/g, '')

test('lanes are read by their place in the queue, whatever the statistics say', async () => {
  const { knex, batch } = db.database
  const now = new Date()
  const times = { now, until: now }
  const position = { dueAt: DUE_AT, eventId: events[9]! }
  const request = (webhookId: string) => ({ webhookId, times, after: undefined, limit: ROWS })
  const together = await listDueOfSeveral(knex, lanes.map(request))
  expect(together.map((list) => list.map(({ eventId }) => eventId))).toEqual(lanes.map(() => events.slice(0, ROWS)))
  const further = await listDueOfSeveral(knex, lanes.map((id) => ({ ...request(id), after: position }))) // prettier-ignore
  expect(further.map(([first]) => first!.eventId)).toEqual(lanes.map(() => events[10]))
  expect(await listDueDeliveries(knex, request(lanes[0]!))).toHaveLength(ROWS)
  expect(await listWaitingUpTo(knex, lanes[0]!, times, position, ROWS)).toEqual(events.slice(0, 10))
  expect((await listDueKeys(knex, lanes.map(request))).eventIds).toHaveLength(ROWS * LANES)
  expect((await listBodies(knex, events.slice(0, ROWS))).size).toBe(ROWS)
  const [copies] = await batch.transaction((send) => send([copiesStatement(lanes, events.slice(0, 3))]))
  expect(copies).toHaveLength(3 * LANES)
  recorder.stop()

  const reads = recorder.statements.filter((sql) => /^\(?SELECT/.test(sql) && /delivery_queue|event_bodies/.test(sql))
  // Two begin with one walk over all heads, which such long queues leave at the first.
  expect(reads).toHaveLength(9)
  const walks = reads.filter((sql) => sql.includes('q.webhook_id IN') && !sql.includes('q.event_id IN'))
  expect(walks).toHaveLength(2)
  for (const sql of walks) {
    const [plan] = await knex.raw(`EXPLAIN FORMAT=TRADITIONAL ${sql.replaceAll('?', '\\?')}`)
    const [first] = (plan as Record<string, string>[]).filter(({ table }) => table === 'q')
    expect([first!.type, first!.Extra]).toEqual(['range', expect.not.stringContaining('filesort')])
  }
  for (const sql of reads) {
    if (!sql.includes('delivery_queue')) {
      expect([...(await stepsOf(sql))]).toEqual(['first b by PRIMARY'])
      continue
    }
    const key = sql.includes('q.event_id IN') ? 'delivery_queue_delivery' : 'PRIMARY'
    const bodies = sql.includes('event_bodies') ? ['then b by PRIMARY'] : []
    expect([...(await stepsOf(sql))], sql.slice(0, 200)).toEqual([`first q by ${key}`, ...bodies])
  }
  // The check itself: left to choose, both servers begin with the bodies.
  const chosen = await Promise.all(reads.map((sql) => stepsOf(withoutHints(sql))))
  expect(chosen.some((steps) => [...steps].some((step) => step.startsWith('first b')))).toBe(true)
}, 30_000)
