/**
 * Proves that paging through the log gives exactly what an independent reading of both tables gives, whichever way a page is
 * read, and that no way of reading it scans a table.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { listDeliveries, type LogSubject } from '../../src/deliveries/delivery-log-repository.ts'
import { findLogWebhook } from '../../src/deliveries/delivery-log-webhooks-repository.ts'
import { cursorOf, logPageOf, type LogQuery } from '../../src/deliveries/delivery-log-rules.ts'
import { newId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'

const EVENTS = 1500
const TYPES = ['lead.created', 'bill.created', 'report.completed'] as const
const STATUSES = ['delivered', 'exhausted', 'discarded'] as const

let db: TestDatabase
let world: DeliveryWorld
let webhookIds: string[]
let startMs: number

/** Of the rows' own; a small generator, so that a failure repeats itself. */
let state = 42
const random = () => (state = (state * 1103515245 + 12345) % 2147483648) / 2147483648
const pick = <T>(values: readonly T[]): T => values[Math.floor(random() * values.length)]!

beforeAll(async () => {
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
  startMs = world.clock.nowMs() - EVENTS * 1000
  webhookIds = []
  for (let i = 0; i < 4; i++) webhookIds.push((await world.webhook({ endpoint: `https://x.example/${i}` })).id)
  await fill(EVENTS)
})
afterAll(async () => {
  await world.close()
  await db.close()
})

/** The second webhook gets one event in forty, the third has a long queue, the fourth nothing. */
async function fill(events: number): Promise<void> {
  const [dense, sparse, backlog] = webhookIds as [string, string, string]
  const rows = { events: [] as object[], deliveries: [] as object[], delivery_queue: [] as object[] }
  const queued = (webhookId: string, eventId: string, epoch: number) =>
    rows.delivery_queue.push({ webhook_id: webhookId, event_id: eventId, due_at: pick(dues), epoch })
  const dues = [0, 1, 2, 3].map((hours) => new Date(world.clock.nowMs() + hours * 3_600_000))
  for (let i = 0; i < events; i++) {
    const id = newId(startMs + i * 1000)
    const at = new Date(startMs + i * 1000)
    rows.events.push({
      id,
      account_id: world.accountId,
      lab_id: world.labId,
      type: pick(TYPES),
      recorded_at: at,
      subject_id: id,
    })
    const ended = (webhookId: string) =>
      rows.deliveries.push({
        webhook_id: webhookId,
        event_id: id,
        status: pick(STATUSES),
        attempts: 1,
        ended_at: at,
      })
    if (random() < 0.8) ended(dense)
    else queued(dense, id, pick([0, 1]))
    if (i % 40 === 0) ended(sparse)
    if (random() < 0.9) queued(backlog, id, 1)
    // Sent again: in both.
    if (random() < 0.1) ended(backlog)
  }
  for (const [table, all] of Object.entries(rows)) {
    for (let i = 0; i < all.length; i += 500) await db.database.knex(table).insert(all.slice(i, i + 500))
  }
}

/** What the log is, read without any cleverness. */
async function wholeLog(ids: string[], query: LogQuery): Promise<string[]> {
  const { knex } = db.database
  const types = new Map((await knex('events').select('id', 'type')).map((row) => [row.id, row.type]))
  const log = new Map<string, { eventId: string; webhookId: string; status: string }>()
  for (const row of await knex('deliveries').whereIn('webhook_id', ids)) {
    log.set(row.event_id + row.webhook_id, { eventId: row.event_id, webhookId: row.webhook_id, status: row.status })
  }
  for (const row of await knex('delivery_queue').whereIn('webhook_id', ids)) {
    const status = row.epoch === 1 ? 'pending' : 'discarded'
    log.set(row.event_id + row.webhook_id, { eventId: row.event_id, webhookId: row.webhook_id, status })
  }
  const from = query.from === undefined ? '' : newId(Date.parse(query.from)).slice(0, 10)
  const to = query.to === undefined ? '~' : newId(Date.parse(query.to)).slice(0, 10)
  return [...log.entries()]
    .filter(([, row]) => query.status === undefined || row.status === query.status)
    .filter(([, row]) => query.type === undefined || types.get(row.eventId) === query.type)
    .filter(([, row]) => row.eventId >= from && row.eventId < to)
    .map(([key, row]) => `${key} ${row.status}`)
    .sort()
    .reverse()
}

async function pagedThrough(subject: LogSubject, query: LogQuery, limit: number): Promise<string[]> {
  const rows: string[] = []
  let cursor: string | undefined
  do {
    const request = logPageOf({ ...query, limit, cursor })
    const { deliveries, next } = await listDeliveries(db.database.knex, subject, request)
    expect(deliveries.length).toBeLessThanOrEqual(limit)
    rows.push(...deliveries.map(({ eventId, webhookId, status }) => `${eventId}${webhookId} ${status}`))
    cursor = next ? cursorOf(next) : undefined
  } while (cursor !== undefined)
  return rows
}

async function subjects(): Promise<[string, LogSubject, string[]][]> {
  const { knex } = db.database
  const all: [string, LogSubject, string[]][] = [
    ['all webhooks', { lab: { id: world.labId, accountId: world.accountId }, scope: 'whole_lab' }, webhookIds],
  ]
  for (const [index, id] of webhookIds.entries()) {
    const webhook = await findLogWebhook(knex, world.accountId, world.labId, id, 'whole_lab')
    all.push([`webhook ${index}`, { webhook: webhook! }, [id]])
  }
  return all
}

const iso = (index: number) => new Date(startMs + index * 1000).toISOString()

describe('paging through the log', () => {
  test('gives each delivery once, in order, and none that the filters leave out', async () => {
    for (const longQueue of [false, true]) {
      // The second round is read event by event: more waits than is read whole.
      if (longQueue) await fill(1200)
      for (const [name, subject, ids] of await subjects()) {
        for (const query of [
          {},
          { status: 'pending' },
          { status: 'discarded', type: 'bill.created' },
          { status: 'exhausted', from: iso(200), to: iso(1300) },
        ] as LogQuery[]) {
          const expected = await wholeLog(ids, query)
          const got = await pagedThrough(subject, query, 97)
          expect([name, longQueue, query, got.length]).toEqual([name, longQueue, query, expected.length])
          expect(got).toEqual(expected)
        }
      }
    }
  })

  test('asks the database for ranges of keys only', async () => {
    const { knex } = db.database
    const asked: { sql: string; bindings: unknown[] }[] = []
    const listen = (query: { sql: string; bindings: unknown[] }) => asked.push(query)
    await knex.raw('ANALYZE TABLE events, deliveries, delivery_queue, webhooks')
    knex.on('query', listen)
    for (const [, subject] of await subjects()) {
      await listDeliveries(knex, subject, logPageOf({ limit: 20 }))
      await listDeliveries(knex, subject, logPageOf({ limit: 20, status: 'discarded', type: 'bill.created' }))
    }
    knex.removeListener('query', listen)
    expect(asked.length).toBeGreaterThan(20)
    for (const { sql, bindings } of asked) {
      const [plan] = await knex.raw(`EXPLAIN ${sql}`, bindings as string[])
      const scans = plan.filter(
        (row: any) => row.type === 'ALL' && /^(events|e|deliveries|d|delivery_queue|q)$/.test(row.table),
      )
      expect([sql, scans]).toEqual([sql, []])
    }
  })
})
