import { afterAll, beforeAll, expect, test } from 'vitest'
import { LaneBacklog } from '../../daemon/lane-backlog.ts'
import { ReadAhead } from '../../daemon/read-ahead.ts'
import { monotonicMs } from '../../src/clock.ts'
import {
  listDueDeliveries,
  listDueOfSeveral,
  type PendingDelivery,
} from '../../src/deliveries/delivery-queue-repository.ts'
import type { DueRequest } from '../../src/deliveries/due-rows.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { HandDaemon } from '../support/hand-daemon.ts'

let db: TestDatabase
let world: DeliveryWorld

beforeAll(async () => {
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
})
afterAll(async () => {
  await world.close()
  await db.close()
})

const ALL = new Date('9999-01-01T00:00:00Z')

/** A webhook of its own, so many copies of which wait, in the order in which they are read. */
async function backlogOf(copies: number) {
  const { knex } = db.database
  const { id } = await world.webhook({ endpoint: 'https://lims.example.in/hooks' })
  const daemon = new HandDaemon(world)
  const add = async (count: number) => {
    for (let n = 0; n < count; n++) await world.event()
    await daemon.route()
  }
  await add(copies)
  const readDue = async (request: DueRequest) => (await listDueOfSeveral(knex, [request]))[0]!
  const backlog = new LaneBacklog({ knex, readAhead: new ReadAhead(), readDue }, id)
  const read = (share?: number) => backlog.read({ now: ALL, until: ALL }, ({ epoch }) => epoch === 1, share)
  const queued: string[] = await knex('delivery_queue').where({ webhook_id: id }).orderBy(['due_at', 'event_id']).pluck('event_id') // prettier-ignore
  const remove = (eventId: string) => knex('delivery_queue').where({ webhook_id: id, event_id: eventId }).delete()
  return { id, backlog, read, add, queued, remove }
}

function takeCopies(backlog: LaneBacklog): PendingDelivery[] {
  const taken: PendingDelivery[] = []
  while (backlog.next) taken.push(backlog.take())
  return taken
}

const takeAll = (backlog: LaneBacklog): string[] => takeCopies(backlog).map(({ eventId }) => eventId)

test('after a recovery those of the oldest events come first, whenever their retries would have been', async () => {
  const { knex } = db.database
  // More than one read brings.
  const { id, backlog, queued } = await backlogOf(1000)
  const now = world.clock.now()
  const oldestFirst = queued.toSorted()
  // As far ahead as chance and the schedule would have it: here the oldest is the last.
  for (const [n, eventId] of oldestFirst.entries()) {
    const dueAt = new Date(now.getTime() + 3_600_000 - n * 1000)
    await knex('delivery_queue').where({ webhook_id: id, event_id: eventId }).update({ due_at: dueAt, attempts: 1 })
  }
  const taken: string[] = []
  let readings = 0
  while (backlog.dryAtMs === undefined) {
    // Whatever its share is: each reading looks at the keys of thousands.
    await backlog.read({ now, until: ALL }, () => true, 20)
    taken.push(...takeAll(backlog))
    readings += 1
  }
  expect(taken).toEqual(oldestFirst)
  expect(readings).toBe(2)
})

test('copies come in the order of the queue, each once, until a look at the head has found all of them', async () => {
  const { backlog, read, queued } = await backlogOf(7)
  expect(backlog.wantsRows()).toBe(true)
  await read()
  expect(backlog.dryAtMs).toBeDefined()
  expect(backlog.wantsRows()).toBe(false)
  expect(takeAll(backlog)).toEqual(queued)
  expect(backlog.underWay).toBe(7)
  backlog.nudge()
  expect(backlog.wantsRows()).toBe(true)
  await read()
  expect(takeAll(backlog)).toEqual([])
  expect(backlog.dryAtMs).toBeDefined()
})

test('what comes with the lane is held as if it had been read, and no more is asked for until something is said to come', async () => {
  const { id, backlog, read, add, queued } = await backlogOf(3)
  const request = { webhookId: id, times: { now: ALL, until: ALL }, after: undefined, limit: 10 }
  backlog.give(await listDueDeliveries(db.database.knex, request), monotonicMs())
  expect([backlog.wantsRows(), backlog.isHeadDue]).toEqual([false, false])
  expect(takeAll(backlog)).toEqual(queued)
  await add(1)
  backlog.nudge()
  await read()
  expect(takeAll(backlog)).toHaveLength(1)
  expect(backlog.underWay).toBe(4)
})

test('what is not recorded yet is held and not read again; what comes before it is', async () => {
  const { id, backlog, read, remove } = await backlogOf(3)
  await read()
  const queued = takeCopies(backlog)
  const first = '00000000000000000000000000'
  await db.database.knex('event_bodies').insert({ event_id: first, body: Buffer.from('{}') })
  await db.database.knex('delivery_queue').insert({ webhook_id: id, due_at: new Date(0), event_id: first, epoch: 1 })
  backlog.nudge()
  await read()
  const come = takeCopies(backlog)
  expect(come.map(({ eventId }) => eventId)).toEqual([first])
  for (const copy of [...queued, ...come]) {
    expect(backlog.isEmpty).toBe(false)
    await remove(copy.eventId)
    expect(backlog.recorded(copy)).toBe(1)
  }
  expect(backlog.isEmpty).toBe(true)
  expect(backlog.underWay).toBe(0)
})

test('what is held is not read again by a reading that goes on behind a look at the head which ended before it', async () => {
  const { id, backlog, read, queued } = await backlogOf(50)
  await read(20)
  expect(takeAll(backlog)).toEqual(queued.slice(0, 20))
  const earlier = Array.from({ length: 70 }, (_, n) => `0a${String(n).padStart(24, '0')}`)
  const { knex } = db.database
  await knex('event_bodies').insert(earlier.map((event_id) => ({ event_id, body: Buffer.from('{}') })))
  await knex('delivery_queue').insert(earlier.map((event_id) => ({ webhook_id: id, due_at: new Date(0), event_id, epoch: 1 }))) // prettier-ignore
  backlog.nudge()
  await read(20)
  expect(takeAll(backlog)).toEqual(earlier.slice(0, 40))
  const taken: string[] = []
  for (let n = 0; n < 20 && backlog.dryAtMs === undefined; n++) {
    await read(20)
    taken.push(...takeAll(backlog))
  }
  expect(taken).toEqual([...earlier.slice(40), ...queued.slice(20)])
  for (const table of ['delivery_queue', 'event_bodies']) await knex(table).whereIn('event_id', earlier).delete()
})

test('what is recorded while a reading is under way, which may still see it, is not sent again', async () => {
  const { backlog, read } = await backlogOf(2)
  await read()
  const [first] = takeCopies(backlog)
  backlog.nudge()
  const reading = read()
  // Its row still stands: the reading sees it, as one that began before the recording's commit would.
  backlog.recorded(first!)
  await reading
  expect(takeAll(backlog)).toEqual([])
})

test('what is dropped is read again, and a reading that was under way then counts for nothing', async () => {
  const { backlog, read, queued } = await backlogOf(3)
  const reading = read()
  backlog.drop()
  await reading
  expect(backlog.next).toBeUndefined()
  await read()
  const sent = backlog.take().eventId
  backlog.drop()
  expect(backlog.underWay).toBe(1)
  backlog.nudge()
  await read()
  expect([sent, ...takeAll(backlog)]).toEqual(queued)
})

test('copies that are not to be sent are told of, and neither held nor handed out', async () => {
  const { id, backlog, read, queued } = await backlogOf(3)
  expect(await read()).toBe(false)
  backlog.drop()
  await db.database.knex('delivery_queue').where({ webhook_id: id, event_id: queued[1]! }).update({ epoch: 0 })
  expect(await read()).toBe(true)
  const copies = takeCopies(backlog)
  expect(copies.map(({ eventId }) => eventId)).toEqual([queued[0], queued[2]])
  expect(copies.map((copy) => backlog.recorded(copy))).toEqual([1, 1])
  // Told twice, and of a copy that is another lane's.
  expect([...copies, { eventId: queued[1]! }].map((copy) => backlog.recorded(copy))).toEqual(Array(3).fill(undefined))
})

test('a long backlog is read part by part, and comes out whole and in order while more is read', async () => {
  const { backlog, read, queued, add } = await backlogOf(130)
  const taken: string[] = []
  while (backlog.dryAtMs === undefined) {
    await read()
    // Some stay behind, so that the next part is read behind them.
    for (let n = 0; n < 40 && backlog.next; n++) taken.push(backlog.take().eventId)
  }
  taken.push(...takeAll(backlog))
  expect(taken).toEqual(queued)
  await add(1)
  backlog.nudge()
  await read()
  expect(takeAll(backlog)).toHaveLength(1)
})

test('of a long backlog it reads no more than its share, and goes on until a reading finds less than it asked for', async () => {
  const { backlog, read, queued } = await backlogOf(130)
  expect(backlog.goesOn).toBe(false)
  await read(60)
  expect([backlog.wantsRows(60), backlog.wantsRows(1000), backlog.goesOn]).toEqual([false, true, true])
  expect(takeAll(backlog)).toEqual(queued.slice(0, 60))
  // Everything that was read has been sent, and there is more.
  expect([backlog.wantsRows(0), backlog.wantsRows(2), backlog.goesOn]).toEqual([false, true, true])
  expect(backlog.underWay).toBe(60)
  await read(60)
  backlog.take()
  // What it has counts: it asks for the rest of its share.
  await read(60)
  expect([takeAll(backlog).length, backlog.goesOn]).toEqual([69, false])
})
