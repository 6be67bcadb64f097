/**
 * A daemon that is told to stop again while it stops, as by somebody impatient: it goes on as it was.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { daemonProcesses, exited, type DaemonProcesses } from '../support/daemon-process.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { createTestTls } from '../support/tls.ts'

const SIGNAL_EACH_MS = 100

let db: TestDatabase
let tls: Awaited<ReturnType<typeof createTestTls>>
let receiver: HttpsReceiver
let world: DeliveryWorld
let daemons: DaemonProcesses
const answered = Promise.withResolvers<void>()

beforeAll(async () => {
  tls = await createTestTls()
  db = await openTestDatabase()
  receiver = await startHttpsReceiver(tls, async () => {
    await answered.promise
    return { status: 204 }
  })
  world = await new DeliveryWorld(db.database).open()
  daemons = daemonProcesses(db.mysqlUrl, tls.caFile)
})
afterAll(async () => {
  daemons.close()
  await world.close()
  await receiver.close()
  await db.close()
  tls.remove()
})

test('it awaits the answers that are under way, records them, gives its lanes back and ends with 0', async () => {
  const { knex } = db.database
  await world.webhook({ endpoint: receiver.url })
  const daemon = await daemons.start({ DELIVERY_ALLOW_CIDRS: '127.0.0.0/8' })
  await Promise.all([world.event(), world.event()])
  await receiver.arrived(2)
  const ended = exited(daemon)
  for (const signal of ['SIGTERM', 'SIGTERM', 'SIGINT', 'SIGTERM'] as const) {
    daemon.kill(signal)
    await new Promise((resolve) => setTimeout(resolve, SIGNAL_EACH_MS))
  }
  expect(daemon.exitCode).toBeNull()
  answered.resolve()
  expect(await ended).toBe(0)
  expect(await knex('deliveries').pluck('status')).toEqual(['delivered', 'delivered'])
  expect(await knex('lanes').whereNotNull('owner')).toEqual([])
  expect(receiver.requests).toHaveLength(2)
}, 40_000)
