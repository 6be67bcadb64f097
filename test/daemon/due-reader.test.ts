/**
 * What lanes read of the queue, and how many bodies the server sends for it.
 */
import type { Knex } from 'knex'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { DueReader } from '../../daemon/due-reader.ts'
import { KnownBodies } from '../../daemon/known-bodies.ts'
import { listDueDeliveries, type PendingDelivery } from '../../src/deliveries/delivery-queue-repository.ts'
import { newId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'

const LANES = 10
const PAGE = 50
const AT = new Date('2026-11-22T10:00:00.000Z')
const NOW = new Date('2026-11-23T10:00:00.000Z')
const times = { now: NOW, until: NOW }

let db: TestDatabase
let nextMs = AT.getTime()
/** Rows that came with their bodies, and statements that asked for keys alone. */
let bodiesRead = 0
let keyReads = 0
function count(rows: unknown, { sql }: { sql: string }): void {
  if (!/^\(?SELECT/.test(sql)) return
  if (/\bbody\b/.test(sql)) bodiesRead += (rows as [unknown[]])[0].length
  else if (sql.includes('q.due_at')) keyReads += 1
}

beforeAll(async () => {
  db = await openTestDatabase()
  db.database.knex.on('query-response', count)
})
beforeEach(() => {
  bodiesRead = 0
  keyReads = 0
})
afterEach(async () => {
  for (const table of ['delivery_queue', 'event_bodies', 'erased_events']) await db.database.knex(table).delete()
})
afterAll(async () => {
  db.database.knex.removeListener('query-response', count)
  await db.close()
})

/** Events, each for all of as many webhooks; each body says whose it is. */
async function queueOf(lanes: number, events: number): Promise<{ webhookIds: string[]; eventIds: string[] }> {
  const { knex } = db.database
  const webhookIds = Array.from({ length: lanes }, () => newId(0))
  const eventIds = Array.from({ length: events }, () => newId(nextMs++))
  const bodies = eventIds.map((event_id, n) => ({ event_id, body: Buffer.from(event_id), is_message: n % 3 === 0 ? 1 : 0 })) // prettier-ignore
  await knex.batchInsert('event_bodies', bodies, 500)
  for (const webhook_id of webhookIds) {
    const copies = eventIds.map((event_id, n) => ({ webhook_id, event_id, due_at: AT, epoch: 1, attempts: n % 4 }))
    await knex.batchInsert('delivery_queue', copies, 500)
  }
  return { webhookIds, eventIds }
}

const requestOf = (webhookId: string, last?: PendingDelivery) => ({
  webhookId,
  times,
  after: last && { dueAt: last.dueAt, eventId: last.eventId },
  limit: PAGE,
})

/** Page by page, all lanes at once. */
async function readAll(reader: DueReader, webhookIds: string[], pages = Infinity): Promise<PendingDelivery[][]> {
  const read = webhookIds.map((): PendingDelivery[] => [])
  for (let page = 0; page < pages; page++) {
    const more = await Promise.all(webhookIds.map((id, n) => reader.read(requestOf(id, read[n]!.at(-1)))))
    for (const [n, list] of more.entries()) read[n]!.push(...list)
    if (more.every((list) => list.length < PAGE)) break
  }
  return read
}

/** One that knows by now that events go to many webhooks. */
async function sharingReader(knex: Knex = db.database.knex): Promise<DueReader> {
  const reader = new DueReader(knex)
  const { webhookIds } = await queueOf(LANES, 300)
  await readAll(reader, webhookIds)
  keyReads = 0
  bodiesRead = 0
  return reader
}

test('a body that many lanes send is read once, and each lane gets what a read of its own would bring', async () => {
  const { webhookIds, eventIds } = await queueOf(LANES, 1000)
  const lists = await readAll(new DueReader(db.database.knex), webhookIds)
  // Until it is seen that events come again, bodies come with the keys.
  expect(bodiesRead).toBeLessThan(1000 + 0.3 * LANES * 1000)
  expect(keyReads).toBeGreaterThan(10)
  for (const [n, webhookId] of webhookIds.entries()) {
    expect(lists[n]!.map(({ eventId }) => eventId)).toEqual(eventIds)
    const own = await listDueDeliveries(db.database.knex, { ...requestOf(webhookId), limit: 2000 })
    expect(lists[n]).toEqual(own)
  }
})

test('lanes that come to the same events in one moment read each body once', async () => {
  const reader = await sharingReader()
  const { webhookIds } = await queueOf(LANES, 600)
  // Too many rows for one statement: each lane reads for itself.
  const read = await Promise.all(webhookIds.map((id) => reader.read({ ...requestOf(id), limit: 400 })))
  expect(read.map((list) => list.length)).toEqual(webhookIds.map(() => 400))
  expect(keyReads).toBe(LANES)
  expect(bodiesRead).toBe(400)
})

test('of bodies too large to be kept each is read once for lanes that come together', async () => {
  const { knex } = db.database
  const reader = await sharingReader()
  const { webhookIds, eventIds } = await queueOf(4, 300)
  await knex('event_bodies')
    .whereIn('event_id', eventIds)
    .update({ body: Buffer.alloc(60_000, 'x') })
  const read = await Promise.all(webhookIds.map((id) => reader.read({ ...requestOf(id), limit: 300 })))
  expect(read.map((list) => list.length)).toEqual([300, 300, 300, 300])
  expect([keyReads, bodiesRead]).toEqual([4, 300])
})

test('where bodies are too large to be kept, that events come again counts less and less', () => {
  const bodies = new KnownBodies()
  const list = Array.from({ length: 300 }, (_, n) => ({ eventId: newId(n) })) as PendingDelivery[]
  const read = { whole: 0, keys: 0 }
  for (let n = 0; n < 2000; n++) {
    if (bodies.areShared) bodies.count(list.length, list.length)
    else bodies.sample([list])
    read[bodies.areShared ? 'keys' : 'whole'] += 1
  }
  expect(read.keys).toBeGreaterThan(0)
  expect(read.keys).toBeLessThan(100)
  // Once it is true, it counts as before.
  while (!bodies.areShared) bodies.sample([list])
  for (let n = 0; n < 10; n++) bodies.count(list.length, 0)
  while (bodies.areShared) bodies.count(list.length, list.length)
  let samplings = 0
  for (; !bodies.areShared; samplings++) bodies.sample([list])
  expect(samplings).toBeLessThan(30)
})

test('where each event goes to one webhook, keys and bodies come in one statement', async () => {
  const { knex } = db.database
  const { webhookIds, eventIds } = await queueOf(1, 2000)
  for (const [n, event_id] of eventIds.entries()) {
    if (n % 2 === 0) await knex('delivery_queue').where({ event_id }).update({ webhook_id: (webhookIds[1] ??= newId(0)) }) // prettier-ignore
  }
  const lists = await readAll(new DueReader(knex), webhookIds)
  expect(lists.map((list) => list.length)).toEqual([1000, 1000])
  expect({ keyReads, bodiesRead }).toEqual({ keyReads: 0, bodiesRead: 2000 })
})

test('it goes back to whole reads when bodies are not the same ones any more', async () => {
  const reader = await sharingReader()
  for (let n = 0; n < 6; n++) {
    const { webhookIds } = await queueOf(1, 1000)
    await readAll(reader, webhookIds)
  }
  expect(keyReads).toBeGreaterThan(0)
  keyReads = 0
  const { webhookIds } = await queueOf(1, 500)
  await readAll(reader, webhookIds)
  expect(keyReads).toBe(0)
})

test('when nobody has asked for two seconds, no body is kept', async () => {
  const reader = await sharingReader()
  const { webhookIds } = await queueOf(LANES, 20)
  await readAll(reader, webhookIds)
  expect(bodiesRead).toBe(20)
  for (let look = 0; look < 7; look++) reader.look()
  await readAll(reader, webhookIds)
  expect(bodiesRead).toBe(20)
  for (let look = 0; look < 8; look++) reader.look()
  await readAll(reader, webhookIds)
  // And those 16 that a walk over all heads found behind the two lanes that it came to the end of.
  expect(bodiesRead).toBe(20 + LANES * 20 + 16)
})

test('what was counted before a pause says nothing of what comes behind it', () => {
  const bodies = new KnownBodies()
  const listOf = () => Array.from({ length: 300 }, (_, n) => ({ eventId: newId(n) })) as PendingDelivery[]
  const list = listOf()
  while (!bodies.areShared) bodies.sample([list])
  bodies.count(1500, 0)
  for (let look = 0; look < 8; look++) bodies.look()
  for (let n = 0; n < 20; n++) {
    bodies.sample([listOf()])
    expect(bodies.areShared).toBe(false)
  }
  // Nor does the pause say anything of what is asked for behind it.
  while (!bodies.areShared) bodies.sample([list])
  bodies.look()
  expect(bodies.areShared).toBe(true)
})

/** Does something between the read of the keys and that of the bodies. */
function interrupted(between: () => Promise<void>): Knex {
  const { knex } = db.database
  const raw = async (sql: string, values: Knex.RawBinding[]) => {
    const rows = await knex.raw(sql, values)
    if (sql.includes('q.due_at') && !sql.includes('b.body')) await between()
    return rows
  }
  return { raw } as unknown as Knex
}

test('what an erasure takes between the two reads is seen as erased, and what stands in its place as no body', async () => {
  const { knex } = db.database
  let erase = async () => {}
  const reader = await sharingReader(interrupted(() => erase()))
  const { webhookIds, eventIds } = await queueOf(3, 20)
  const erased = eventIds[7]!
  erase = () =>
    knex.transaction(async (trx) => {
      await trx('delivery_queue').where({ event_id: erased }).update({ epoch: 0 })
      await trx('event_bodies').where({ event_id: erased }).update({ body: '{"erased":true}' })
      await trx('erased_events')
        .insert({ event_id: erased, erasure_id: newId(0) })
        .onConflict()
        .ignore()
    })
  const lists = await readAll(reader, webhookIds)
  for (const list of lists) {
    expect(list.map(({ eventId }) => eventId).sort()).toEqual(eventIds)
    for (const { eventId, epoch, body } of list) {
      expect(epoch).toBe(eventId === erased ? 0 : 1)
      if (eventId !== erased) expect(String(body)).toBe(eventId)
    }
  }
})

test('a copy whose body is gone is left out, as it is by a whole read', async () => {
  const { knex } = db.database
  const reader = await sharingReader()
  const { webhookIds, eventIds } = await queueOf(3, 20)
  await knex('event_bodies').where({ event_id: eventIds[3]! }).delete()
  const [first] = await readAll(reader, webhookIds)
  expect(first!.map(({ eventId }) => eventId)).toEqual(eventIds.filter((_, n) => n !== 3))
})

test('a read that fails fails for whoever asked, and the next one reads', async () => {
  let isBroken = false
  const { knex } = db.database
  const raw = (sql: string, values: Knex.RawBinding[]) =>
    isBroken && sql.includes('erased_events') ? Promise.reject(new Error('gone away')) : knex.raw(sql, values)
  const reader = await sharingReader({ raw } as unknown as Knex)
  const { webhookIds } = await queueOf(3, 20)
  isBroken = true
  const ended = await Promise.allSettled(webhookIds.map((id) => reader.read(requestOf(id))))
  expect(ended.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected'])
  isBroken = false
  const lists = await readAll(reader, webhookIds)
  expect(lists.map((list) => list.length)).toEqual([20, 20, 20])
})
