/** A delivery that is sent again while its event is erased. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connectDatabase, type Database } from '../../db/connection.ts'
import { startDatabaseProxy, type DatabaseProxy } from '../../scripts/crash/database-proxy.ts'
import { findLogWebhook } from '../../src/deliveries/delivery-log-webhooks-repository.ts'
import { redeliver } from '../../src/deliveries/recovery.ts'
import { eraseEvents } from '../../src/erasure/erased-events-repository.ts'
import { newId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { HandDaemon } from '../support/hand-daemon.ts'
import { whileAsked } from '../support/while-asked.ts'

let db: TestDatabase
let world: DeliveryWorld
let proxy: DatabaseProxy
/** By way of which the erasure asks. */
let slow: Database

beforeAll(async () => {
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
  proxy = await startDatabaseProxy(db.mysqlUrl)
  slow = connectDatabase(proxy.mysqlUrl)
})
afterAll(async () => {
  await slow.close()
  proxy.close()
  await world.close()
  await db.close()
})

test('is queued as one that is not to be sent, whenever it comes', async () => {
  const { knex } = db.database
  const { id } = await world.webhook({ endpoint: 'https://again.example.in/hooks' })
  const daemon = new HandDaemon(world)
  const { id: eventId } = await world.event()
  await daemon.route()
  expect(await daemon.take(id)).toBe(true)
  await daemon.record((await daemon.waiting(id)).map((copy) => ({ copy, ok: true })))
  const lane = () => knex('lanes').where({ webhook_id: id }).first('queue_moves', 'settings_changed_at')
  const before = await lane()
  const webhook = (await findLogWebhook(knex, world.accountId, world.labId, id, 'whole_lab'))!
  const now = world.clock.now()
  await whileAsked(
    proxy,
    /select distinct .*delivery_queue/i,
    () => slow.transaction((trx) => eraseEvents(trx, newId(now.getTime()), [eventId], now)),
    () => db.database.transaction((trx) => redeliver(trx, webhook, eventId, false, now)),
  )
  expect(await knex('delivery_queue').where({ event_id: eventId }).pluck('epoch')).toEqual([0])
  // And whoever has the lane, and may have read the copy in between, is told to read anew.
  const after = await lane()
  expect(after.queue_moves).toBe(before.queue_moves + 1)
  expect([before.settings_changed_at, after.settings_changed_at]).toEqual([null, now])
  await knex('lanes').where({ webhook_id: id }).update({ owner: null })
  await knex('delivery_queue').delete()
})
