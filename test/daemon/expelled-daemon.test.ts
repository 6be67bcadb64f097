/**
 * A daemon that others have buried while it works, and that has no new token yet: it takes nothing under the old one, for that
 * could not be recorded, and would be sent again.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { retireDaemon } from '../../src/deliveries/daemons-repository.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { createTestTls } from '../support/tls.ts'
import { isUnderWay } from '../support/under-way.ts'

const EVENTS = 600
/** A daemon that may would have begun long before. */
const QUIET_MS = 1500

let db: TestDatabase
let tls: Awaited<ReturnType<typeof createTestTls>>
let world: DeliveryWorld
let receiver: HttpsReceiver

beforeAll(async () => {
  tls = await createTestTls()
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
  receiver = await startHttpsReceiver(tls, async () => {
    await new Promise((resolve) => setTimeout(resolve, 15))
    return { status: 204 }
  })
})
afterAll(async () => {
  await world.close()
  await receiver.close()
  await db.close()
  tls.remove()
})

test('it takes no lane before it has a new token, and then sends everything once', async () => {
  const { knex, transaction } = db.database
  await world.webhook({ endpoint: receiver.url })
  for (let n = 0; n < EVENTS; n += 10) await Promise.all(Array.from({ length: 10 }, () => world.event()))
  const events = await knex('unrouted_events')
  await knex('unrouted_events').delete()
  await world.daemon(tls.caFile)
  const { token } = await knex('daemons').first('token')
  // As another daemon does it.
  await transaction((trx) => retireDaemon(trx, token))
  await knex.transaction(
    async (trx) => {
      // Holds the gap in which its new row is to stand.
      await trx.raw('SELECT * FROM daemons FOR UPDATE')
      await expect.poll(() => isUnderWay(knex, 'insert into `daemons`'), { timeout: 10_000, interval: 10 }).toBe(true)
      await knex('unrouted_events').insert(events)
      await new Promise((resolve) => setTimeout(resolve, QUIET_MS))
      expect(receiver.requests).toEqual([])
    },
    { isolationLevel: 'repeatable read' },
  )
  const left = async () =>
    (await knex('delivery_queue').pluck('event_id')).length + (await knex('unrouted_events').pluck('event_id')).length
  await expect.poll(left, { timeout: 30_000, interval: 100 }).toBe(0)
  const times = Map.groupBy(receiver.requests, ({ headers }) => String(headers['webhook-id']))
  expect(times.size).toBe(EVENTS)
  expect(receiver.requests).toHaveLength(EVENTS)
}, 90_000)
