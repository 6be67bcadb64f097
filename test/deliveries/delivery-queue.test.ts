import { afterAll, beforeAll, expect, test } from 'vitest'
import { listDueDeliveries, listDueOfSeveral, listWaitingUpTo } from '../../src/deliveries/delivery-queue-repository.ts'
import type { DueRequest } from '../../src/deliveries/due-rows.ts'
import { newId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import type { Knex } from 'knex'

const WEBHOOKS = 5
const COPIES = 3000
/** So many copies of each webhook are due at one time, the others a millisecond apart. */
const AT_ONCE = 2000
const LIMIT = 100
const AT = new Date('2026-11-22T10:00:00.000Z')
const LATER = new Date('2026-11-23T10:00:00.000Z')

let db: TestDatabase
const webhookIds = Array.from({ length: WEBHOOKS }, () => newId(AT.getTime()))
const eventIds = Array.from({ length: COPIES }, (_, n) => newId(AT.getTime() + n))

const dueAtOf = (n: number) => new Date(AT.getTime() + Math.max(0, n - AT_ONCE + 1))

beforeAll(async () => {
  db = await openTestDatabase()
  const { knex } = db.database
  const body = Buffer.alloc(200, 'x')
  await knex.batchInsert('event_bodies', eventIds.map((event_id) => ({ event_id, body })), 1000) // prettier-ignore
  for (const webhook_id of webhookIds) {
    const rows = eventIds.map((event_id, n) => ({ webhook_id, event_id, due_at: dueAtOf(n), epoch: 1 }))
    await knex.batchInsert('delivery_queue', rows, 1000)
  }
  await knex.raw('ANALYZE TABLE delivery_queue, event_bodies')
})
afterAll(async () => {
  await db.database.knex('delivery_queue').whereIn('webhook_id', webhookIds).delete()
  await db.database.knex('event_bodies').whereIn('event_id', eventIds).delete()
  await db.close()
})

/** @returns how many rows the server has read for it, by its own count */
async function rowsReadFor(work: (knex: Knex) => Promise<unknown>): Promise<number> {
  return db.database.knex.transaction(async (trx) => {
    const read = async () => {
      const [rows] = await trx.raw("SHOW SESSION STATUS LIKE 'Handler_read%'")
      return (rows as { Value: string }[]).reduce((sum, { Value }) => sum + Number(Value), 0)
    }
    const before = await read()
    const between = await read()
    await work(trx)
    // What looking costs is counted as well.
    return (await read()) - between - (between - before)
  })
}

test.each([
  ['within those of one due time', 1200],
  ['from the last of one due time', AT_ONCE - 1],
  ['from within one due time to later ones', AT_ONCE - 30],
  ['where each has its own due time', AT_ONCE + 500],
  ['to the end', COPIES - 40],
])('behind a position the copies come in order, and the server reads no others: %s', async (_, place) => {
  const position = { dueAt: dueAtOf(place), eventId: eventIds[place]! }
  const expected = eventIds.slice(place + 1, place + 1 + LIMIT)
  const requestOf = (webhookId: string) => ({ webhookId, times: { now: LATER, until: LATER }, after: position, limit: LIMIT }) // prettier-ignore
  const each = webhookIds.map((webhookId) => listDueDeliveries(db.database.knex, requestOf(webhookId)))
  const together = await listDueOfSeveral(db.database.knex, webhookIds.map(requestOf))
  for (const read of [...(await Promise.all(each)), ...together]) {
    expect(read.map(({ eventId }) => eventId)).toEqual(expected)
    expect(read.map(({ dueAt }) => dueAt)).toEqual(expected.map((__, n) => dueAtOf(place + 1 + n)))
  }
  // A row of the queue and one of the bodies each, and where the ranges end.
  const rows = await rowsReadFor((knex) => listDueDeliveries(knex, requestOf(webhookIds[0]!)))
  expect(rows).toBeLessThan(2 * LIMIT + 20)
  // Together, once more for those that the server puts aside.
  const rowsOfAll = await rowsReadFor((knex) => listDueOfSeveral(knex, webhookIds.map(requestOf)))
  expect(rowsOfAll).toBeLessThan(webhookIds.length * (3 * LIMIT + 20))
})

test('what is due later than asked for is left out, before and behind a position', async () => {
  const until = dueAtOf(AT_ONCE + 9)
  const position = { dueAt: dueAtOf(AT_ONCE - 5), eventId: eventIds[AT_ONCE - 5]! }
  const webhookId = webhookIds[1]!
  const request = { webhookId, times: { now: until, until }, after: position, limit: LIMIT }
  const read = await listDueDeliveries(db.database.knex, request)
  expect(read.map(({ eventId }) => eventId)).toEqual(eventIds.slice(AT_ONCE - 4, AT_ONCE + 10))
  expect(await listDueDeliveries(db.database.knex, { ...request, times: { now: LATER, until: new Date(0) } })).toEqual(
    [],
  )
})

test.each([
  ['within one due time', 700],
  ['where each has its own', AT_ONCE + 100],
])(
  'what waits up to a position is that alone, as much as was asked for, and the server reads no more: %s',
  async (_, place) => {
    const position = { dueAt: dueAtOf(place), eventId: eventIds[place]! }
    const { knex } = db.database
    const all = await listWaitingUpTo(knex, webhookIds[2]!, { now: LATER, until: LATER }, position, COPIES)
    expect(all).toEqual(eventIds.slice(0, place + 1))
    expect(await listWaitingUpTo(knex, webhookIds[2]!, { now: LATER, until: LATER }, position, LIMIT)).toEqual(
      eventIds.slice(0, LIMIT),
    )
    const rows = await rowsReadFor((trx) =>
      listWaitingUpTo(trx, webhookIds[2]!, { now: LATER, until: LATER }, position, LIMIT),
    )
    expect(rows).toBeLessThan(LIMIT + 20)
  },
)

test('of many lanes the heads are read in one walk: each gets what a read of its own brings', async () => {
  const { knex } = db.database
  const short = Array.from({ length: 60 }, () => newId(AT.getTime() - 1000))
  const copies = short.flatMap((webhook_id, n) =>
    eventIds.slice(n, n + (n % 6)).map((event_id, k) => ({ webhook_id, event_id, due_at: dueAtOf(k), epoch: 1 })),
  )
  await knex.batchInsert('delivery_queue', copies, 1000)
  const now = { now: LATER, until: LATER }
  const early = { now: dueAtOf(0), until: dueAtOf(0) }
  const requestOf = (webhookId: string, n: number): DueRequest => ({
    webhookId,
    times: n % 7 === 0 ? early : now,
    after: n % 5 === 0 ? { dueAt: dueAtOf(0), eventId: eventIds[n]! } : undefined,
    limit: n % 4 === 0 ? 3 : LIMIT,
  })
  const readBothWays = async (ids: string[]) => {
    const requests = ids.map(requestOf)
    const together = await listDueOfSeveral(knex, requests)
    for (const [n, request] of requests.entries()) expect(together[n]).toEqual(await listDueDeliveries(knex, request))
    return together.flat().length
  }
  try {
    expect(await readBothWays(short)).toBeGreaterThan(80)
    // One asks twice, and long queues stand before, between and behind the short ones.
    const long = webhookIds.slice(0, 3)
    const later = Array.from({ length: 5 }, () => newId(AT.getTime() + 1000))
    await knex.batchInsert('delivery_queue', later.map((webhook_id) => ({ webhook_id, event_id: eventIds[0]!, due_at: AT, epoch: 1 })), 10) // prettier-ignore
    expect(await readBothWays([...later, short[2]!, ...long, ...short, short[2]!])).toBeGreaterThan(80)
    await knex('delivery_queue').whereIn('webhook_id', later).delete()
    const heads = short.map((webhookId) => ({ webhookId, times: now, after: undefined, limit: LIMIT }))
    // As many rows of the queue as there are copies, and as many bodies.
    const rows = await rowsReadFor((trx) => listDueOfSeveral(trx, heads))
    expect(rows).toBeLessThan(2 * copies.length + 2 * short.length + 20)
  } finally {
    await knex('delivery_queue').whereIn('webhook_id', short).delete()
  }
})

test('what is under way at the heads takes no room of what is new', async () => {
  const { knex } = db.database
  const lanes = Array.from({ length: 10 }, () => newId(AT.getTime()))
  const copies = lanes.flatMap((webhook_id) =>
    eventIds.slice(0, 12).map((event_id) => ({ webhook_id, event_id, due_at: AT, epoch: 1 })),
  )
  await knex.batchInsert('delivery_queue', copies, 1000)
  const statements: string[] = []
  const note = ({ sql }: { sql: string }) => statements.push(sql)
  const times = { now: LATER, until: LATER }
  const request = (webhookId: string, held: number) => ({ webhookId, times, after: undefined, limit: 20 + held, held })
  try {
    knex.on('query', note)
    for (const held of [11, 0]) {
      const lists = await listDueOfSeveral(knex, lanes.map((id) => request(id, held))) // prettier-ignore
      expect(lists.map((list) => list.map(({ eventId }) => eventId))).toEqual(lanes.map(() => eventIds.slice(0, 12)))
    }
    // Where nobody says so, most have to be read again.
    expect(statements.map((sql) => sql.includes('UNION'))).toEqual([false, false, true])
  } finally {
    knex.removeListener('query', note)
    await knex('delivery_queue').whereIn('webhook_id', lanes).delete()
  }
})

test('what waits for a later time is not walked over', async () => {
  const { knex } = db.database
  const lanes = Array.from({ length: 10 }, () => newId(AT.getTime()))
  const waiting = lanes.flatMap((webhook_id) =>
    eventIds.slice(0, 1000).map((event_id, n) => ({ webhook_id, event_id, due_at: n < 2 ? AT : LATER, epoch: 1 })),
  )
  await knex.batchInsert('delivery_queue', waiting, 1000)
  try {
    const times = { now: dueAtOf(COPIES), until: dueAtOf(COPIES) }
    const requests = lanes.map((webhookId) => ({ webhookId, times, after: undefined, limit: LIMIT }))
    let lists: unknown[][] = []
    const rows = await rowsReadFor(async (trx) => (lists = await listDueOfSeveral(trx, requests)))
    expect(lists.map((list) => list.length)).toEqual(lanes.map(() => 2))
    expect(rows).toBeLessThan(100)
  } finally {
    await knex('delivery_queue').whereIn('webhook_id', lanes).delete()
  }
})
