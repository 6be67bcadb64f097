/**
 * The last copies of one message that end at once, in two transactions: one of them must see that the other one's is gone, or
 * nobody would ever send the message.
 */
import type { Knex } from 'knex'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { EventType } from '../../src/events/event-types.ts'
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

/** How many statements in this connection's database wait for a lock. */
async function lockWaits(knex: Knex): Promise<number> {
  const [[{ n }]] = await knex.raw(
    `SELECT COUNT(*) AS n FROM information_schema.innodb_trx t
     JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id
     WHERE t.trx_state = 'LOCK WAIT' AND p.db = DATABASE()`,
  )
  return Number(n)
}

test('a message whose last two copies fail at once at webhooks of two daemons goes the normal way', async () => {
  const { knex } = db.database
  /** @returns what lets everything fail that waits for this webhook */
  const failingWebhook = async (events: EventType[]) => {
    const { id } = await world.webhook({ endpoint: 'https://partner.example.com/', events })
    const daemon = new HandDaemon(world, { RETRY_SCHEDULE: '1' })
    await daemon.take(id)
    return async () => {
      const copies = await daemon.waiting(id)
      await daemon.record(copies.map((copy) => ({ copy, ok: false })))
    }
  }
  const fails = [
    await failingWebhook(['bill.send', 'booking.send']),
    await failingWebhook(['bill.send', 'report.send']),
  ]
  // Messages are looked at in this order. Each webhook has one of its own before the shared one, so that what its statement sees is
  // settled when it comes to that; and one behind it, which keeps both in the middle of their work until it is let go.
  const ownOfEach = async () => [
    (await world.message({ type: 'booking.send' })).id,
    (await world.message({ type: 'report.send' })).id,
  ]
  const before = await ownOfEach()
  const shared = (await world.message({ type: 'bill.send' })).id
  const behind = await ownOfEach()
  await world.route()
  for (const fail of fails) await fail()
  let last: Promise<unknown> = Promise.resolve()
  await knex.transaction(async (trx) => {
    for (const id of behind) await trx('messages').where({ event_id: id }).forUpdate()
    last = Promise.all(fails.map((fail) => fail()))
    last.catch(() => {})
    await expect.poll(() => lockWaits(knex), { timeout: 10_000, interval: 100 }).toBe(2)
  })
  await last
  expect(await knex('delivery_queue').pluck('event_id')).toEqual([])
  const states = Object.fromEntries((await knex('messages')).map((row) => [row.event_id, row.state]))
  expect(states).toEqual(Object.fromEntries([...before, shared, ...behind].map((id) => [id, 'normal'])))
})
