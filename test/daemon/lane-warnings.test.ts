/**
 * Lanes that can't be given back for a while: each is tried five times a second, and the log stays readable.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connectDatabase, type Database } from '../../db/connection.ts'
import { startDatabaseProxy, type DatabaseProxy } from '../../scripts/crash/database-proxy.ts'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { createTestTls } from '../support/tls.ts'

const LANES = 4
/** Of the statement that gives them back. */
const FAULTS = 8

let db: TestDatabase
let tls: Awaited<ReturnType<typeof createTestTls>>
let receiver: HttpsReceiver
let proxy: DatabaseProxy
let database: Database
let world: DeliveryWorld

beforeAll(async () => {
  tls = await createTestTls()
  db = await openTestDatabase()
  receiver = await startHttpsReceiver(tls)
  proxy = await startDatabaseProxy(db.mysqlUrl)
  database = connectDatabase(proxy.mysqlUrl)
  world = await new DeliveryWorld(database).open()
})
afterAll(async () => {
  await world.close()
  await database.close()
  proxy.close()
  await receiver.close()
  await db.close()
  tls.remove()
})

test('they are told of together, in a line every five seconds', async () => {
  let faults = 0
  const failNext = () =>
    proxy.arm({ statement: /UPDATE lanes FORCE INDEX \(PRIMARY\) SET due_at = CASE/, when: 'before' }, (cut) => {
      if (++faults < FAULTS) failNext()
      cut()
    })
  for (let n = 0; n < LANES; n++) await world.webhook({ endpoint: receiver.url })
  await world.daemon(tls.caFile)
  failNext()
  await world.event()
  const lines = () => world.logged.filter(({ event }) => event === 'lane.settle_retried')
  await expect.poll(lines, { timeout: 20_000 }).toHaveLength(2)
  expect(faults).toBe(FAULTS)
  const [first, second] = lines()
  expect(first).toMatchObject({ lanes: 1, webhookId: expect.any(String), code: expect.any(String) })
  expect(second).toMatchObject({ lanes: LANES, code: expect.any(String) })
  expect(second).not.toHaveProperty('webhookId')
  expect(await db.database.knex('lanes').whereNotNull('owner')).toEqual([])
}, 60_000)
