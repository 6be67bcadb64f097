/**
 * A webhook that is deleted while its daemon does not see the database: the daemon can't know of it, so that once its view of the
 * lane has grown old it starts nothing, whatever it has read before.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startDatabaseProxy, type DatabaseProxy } from '../../scripts/crash/database-proxy.ts'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { LANE_VIEW_MAX_AGE_MS } from '../../src/deliveries/lanes-repository.ts'
import { daemonProcesses, type DaemonProcesses } from '../support/daemon-process.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { createTestTls } from '../support/tls.ts'

const EVENTS = 200
const IN_FLIGHT = 4
/** From then on the daemon has sent and read for a while. */
const BEGUN = 40
/** A daemon that may would have begun long before. */
const QUIET_MS = 1500

let db: TestDatabase
let tls: Awaited<ReturnType<typeof createTestTls>>
let world: DeliveryWorld
let proxy: DatabaseProxy
let daemons: DaemonProcesses
let receiver: HttpsReceiver
/** What comes later than the first ones is answered when the test says so. */
const held = Promise.withResolvers<void>()

beforeAll(async () => {
  tls = await createTestTls()
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
  proxy = await startDatabaseProxy(db.mysqlUrl)
  daemons = daemonProcesses(proxy.mysqlUrl, tls.caFile)
  receiver = await startHttpsReceiver(tls, async () => {
    if (receiver.requests.length > BEGUN) await held.promise
    return { status: 204 }
  })
})
afterAll(async () => {
  daemons.close()
  proxy.close()
  await receiver.close()
  await world.close()
  await db.close()
  tls.remove()
})

const passed = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

test('a daemon that no longer sees its database sends nothing more to a webhook that was deleted meanwhile', async () => {
  const { id } = await world.webhook({ endpoint: receiver.url })
  const recorded = async () => {
    const delivered = await db.database
      .knex('deliveries')
      .where({ webhook_id: id, status: 'delivered' })
      .pluck('event_id')
    return delivered.length
  }
  for (let n = 0; n < EVENTS; n += 10) await Promise.all(Array.from({ length: 10 }, () => world.event()))
  await world.route()
  await daemons.start({ DELIVERY_MAX_IN_FLIGHT: String(IN_FLIGHT) })
  await receiver.arrived(BEGUN + IN_FLIGHT)
  // A transaction that records would be held with the webhook's row locked, and the deletion wait for it.
  await expect.poll(recorded, { timeout: 20_000, interval: 50 }).toBe(BEGUN)
  proxy.mode = 'hold'
  await world.deleteWebhook(id)
  await passed(2 * LANE_VIEW_MAX_AGE_MS)
  // Its slots come free only now, when what it knows is too old: how fast the machine is does not matter.
  const before = receiver.requests.length
  held.resolve()
  await passed(QUIET_MS)
  expect(receiver.requests.length).toBe(before)
  // It sees the database again: what was sent is recorded, what waited is discarded.
  proxy.mode = 'pass'
  const waiting = () => db.database.knex('delivery_queue').where({ webhook_id: id }).pluck('event_id')
  await expect.poll(waiting, { timeout: 20_000, interval: 50 }).toEqual([])
  await expect.poll(recorded, { timeout: 10_000 }).toBe(before)
  expect(receiver.requests.length).toBe(before)
}, 60_000)
