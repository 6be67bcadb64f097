/**
 * A connection that ends in the middle of a fan-out: nothing that was in it is to blame.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connectDatabase } from '../../db/connection.ts'
import { startDatabaseProxy } from '../../scripts/crash/database-proxy.ts'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { createTestTls } from '../support/tls.ts'

let db: TestDatabase
let tls: Awaited<ReturnType<typeof createTestTls>>
let world: DeliveryWorld
let receiver: HttpsReceiver
const cleanups: (() => unknown)[] = []

beforeAll(async () => {
  tls = await createTestTls()
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
  receiver = await startHttpsReceiver(tls)
})
afterAll(async () => {
  for (const cleanup of cleanups) await cleanup()
  await world.close()
  await receiver.close()
  await db.close()
  tls.remove()
})

test('the one event of that fan-out is routed as soon as the database is back, not a minute later', async () => {
  const proxy = await startDatabaseProxy(db.mysqlUrl)
  const database = connectDatabase(proxy.mysqlUrl)
  const behind = new DeliveryWorld(database)
  cleanups.push(
    () => behind.close(),
    () => database.close(),
    () => proxy.close(),
  )
  await behind.clock.follow(database.readTimeMs, () => {})
  await world.webhook({ endpoint: receiver.url })
  await behind.daemon(tls.caFile)
  let cuts = 0
  proxy.arm({ statement: /DELETE u FROM [^;]* unrouted_events/, when: 'before' }, () => {
    cuts += 1
    proxy.reset()
  })
  await world.event()
  await expect.poll(() => receiver.requests.length, { timeout: 20_000 }).toBe(1)
  expect(cuts).toBe(1)
}, 60_000)
