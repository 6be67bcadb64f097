/**
 * Somebody's transaction that is still open keeps nobody else waiting. The server reads a table from end to end where that seems
 * cheaper, and a statement that locks then meets rows that are none of its own: tables are small here, as many are.
 */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import type { Knex } from 'knex'
import { COMMIT } from '../../db/batch.ts'
import { lockBodies, lockMessageStates } from '../../src/deliveries/recovery-repository.ts'
import { settleLanes } from '../../src/deliveries/lanes-repository.ts'
import { newId } from '../../src/ids.ts'
import { recordDeletion } from '../../src/webhooks/webhooks-repository.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { HandDaemon } from '../support/hand-daemon.ts'

const endpoint = 'https://partner.example.com/'
const TABLES = ['delivery_queue', 'lanes', 'webhooks', 'messages', 'event_bodies']

let db: TestDatabase
let world: DeliveryWorld
let open: Knex.Transaction

beforeAll(async () => {
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
})
afterAll(async () => {
  await world.close()
  await db.close()
})

/** Others' rows: some that are there, and locked, and some that are being written. */
beforeEach(async () => {
  const { knex } = db.database
  const daemon = new HandDaemon(world)
  const labId = newId(0)
  await world.webhook({ endpoint, labId })
  await world.webhook({ endpoint, labId })
  await world.event({ labId })
  await world.message({ labId })
  await daemon.route()
  open = await knex.transaction()
  for (const table of TABLES) {
    const [row] = (await open(table).forUpdate()) as Record<string, unknown>[]
    await open(table).insert(copyOf(row!))
  }
  for (const id of [newId(0), newId(9e15)]) await open('unrouted_events').insert({ event_id: id, is_message: 0 })
})
afterEach(() => open.rollback())

function copyOf(row: Record<string, unknown>): Record<string, unknown> {
  const key = Object.keys(row).find((name) => ['id', 'webhook_id', 'event_id'].includes(name))!
  return { ...row, [key]: newId(world.clock.nowMs()) }
}

test.each([1, 2, 3, 5, 8, 13, 30, 100])('a fan-out of %i events', async (count) => {
  const labId = newId(0)
  await world.webhook({ endpoint, labId })
  for (let n = 0; n < count; n++) await world.event({ labId })
  expect((await new HandDaemon(world).route()).events).toBe(count)
})

test.each([1, 2, 3])('an event that is named, and %i webhooks', async (count) => {
  const labId = newId(0)
  for (let n = 0; n < count; n++) await world.webhook({ endpoint, labId })
  const { id } = await world.event({ labId })
  expect((await new HandDaemon(world).routeHinted(id)).webhookIds).toHaveLength(count)
})

test.each([30, 13, 8, 5, 3, 2, 1])('recording for %i webhooks, and giving them back', async (count) => {
  const labId = newId(0)
  const ids: string[] = []
  for (let n = 0; n < count; n++) ids.push((await world.webhook({ endpoint, labId })).id)
  const daemon = new HandDaemon(world)
  for (const ok of [false, true, true]) {
    const event = await world.event({ labId })
    await daemon.route()
    for (const id of ids) await daemon.take(id)
    const answers = []
    for (const id of ids) answers.push({ copy: await daemon.copyOf(id, event.id), ok })
    expect((await daemon.record(answers)).lostWebhookIds.size).toBe(0)
  }
  await db.database.batch.transaction((send) => settleLanes(send, ids, daemon.token, [COMMIT]))
  expect(await db.database.knex('lanes').where({ owner: daemon.token }).pluck('webhook_id')).toEqual([])
})

test('recording the backlog of one webhook', async () => {
  const labId = newId(0)
  const { id } = await world.webhook({ endpoint, labId })
  const daemon = new HandDaemon(world)
  for (const ok of [false, true, true]) {
    for (let n = 0; n < 120; n++) await world.event({ labId })
    await daemon.route()
    await daemon.take(id)
    const answers = (await daemon.waiting(id)).map((copy) => ({ copy, ok }))
    expect(answers.length).toBeGreaterThan(100)
    expect((await daemon.record(answers)).lostWebhookIds.size).toBe(0)
  }
  expect(await daemon.waiting(id)).toEqual([])
  await db.database.batch.transaction((send) => settleLanes(send, [id], daemon.token, [COMMIT]))
})

test.each([60, 8, 2, 1])('recording what becomes of %i messages, and looking at them for a recovery', async (count) => {
  const labId = newId(0)
  const { id } = await world.webhook({ endpoint, labId, events: ['booking.send'] })
  const daemon = new HandDaemon(world)
  const messageIds: string[] = []
  for (let n = 0; n < count; n++) messageIds.push((await world.message({ labId })).id)
  expect((await daemon.route()).events).toBe(count)
  await daemon.take(id)
  const record = async (ok: boolean) => daemon.record((await daemon.waiting(id)).map((copy) => ({ copy, ok })))
  for (const ok of [false, true]) expect((await record(ok)).lostWebhookIds.size).toBe(0)
  const states = await db.database.transaction(async (trx) => [
    [...(await lockMessageStates(trx, messageIds)).values()],
    [...(await lockBodies(trx, messageIds))],
  ])
  expect(states).toEqual([messageIds.map(() => 'taken'), messageIds.toSorted()])
  await db.database.batch.transaction((send) => settleLanes(send, [id], daemon.token, [COMMIT]))
})

test.each([60, 8, 2, 1])('discarding %i copies of a webhook that is gone', async (count) => {
  const labId = newId(0)
  const { id } = await world.webhook({ endpoint, labId })
  const daemon = new HandDaemon(world)
  for (let n = 0; n < count; n++) await world.event({ labId })
  await daemon.route()
  await db.database.transaction((trx) => recordDeletion(trx, id, world.clock.now()))
  await daemon.take(id)
  expect((await daemon.discard(id)).copies).toBe(count)
  expect(await daemon.waiting(id)).toEqual([])
  await daemon.discard(id)
  await db.database.batch.transaction((send) => settleLanes(send, [id], daemon.token, [COMMIT]))
})
