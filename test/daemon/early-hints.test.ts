/**
 * A daemon that starts on the port of one that was killed gets that one's hints, before it has a token of its own. And anyone
 * may send any number of them.
 */
import { createSocket } from 'node:dgram'
import { createConnection } from 'mysql2/promise'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { driverOptions } from '../../db/connection.ts'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { hintDatagram } from '../../src/events/daemon-hints.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { freePort } from '../support/free-port.ts'
import { createTestTls } from '../support/tls.ts'

const HINTS = 60

let db: TestDatabase
let tls: Awaited<ReturnType<typeof createTestTls>>
let world: DeliveryWorld
let receiver: HttpsReceiver

beforeAll(async () => {
  tls = await createTestTls()
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
  receiver = await startHttpsReceiver(tls)
})
afterAll(async () => {
  await world.close()
  await receiver.close()
  await db.close()
  tls.remove()
})

test('a hint that comes before the daemon has joined takes no lane', async () => {
  const { knex } = db.database
  await world.webhook({ endpoint: receiver.url })
  const event = await world.event()
  const port = await freePort()
  const locker = await createConnection(driverOptions(db.mysqlUrl))
  // It can't join while this holds.
  await locker.query('LOCK TABLES daemons WRITE')
  const starting = world.daemon(tls.caFile, { DAEMON_PORT: String(port) })
  const socket = createSocket('udp4')
  for (let n = 0; n < HINTS; n++) {
    for (const hint of [{ kind: 'events', eventId: event.id }, { kind: 'settings' }, { kind: 'lanes' }] as const)
      socket.send(hintDatagram(hint), port, '127.0.0.1')
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
  expect(await knex('lanes').whereNotNull('owner')).toEqual([])
  expect(await knex('unrouted_events')).toHaveLength(1)
  await locker.query('UNLOCK TABLES')
  await locker.end()
  socket.close()
  const daemon = await starting
  await receiver.arrived(1)
  const [token] = await knex('daemons').pluck('token')
  expect(await knex('lanes').pluck('owner')).toEqual([token])
  await daemon.stop()
})

test('hints without number that something is due make a lane look no more often than ten times a second', async () => {
  const { knex } = db.database
  await world.webhook({ endpoint: `${receiver.url}/flooded` })
  const daemon = await world.daemon(tls.caFile)
  await world.event()
  await expect.poll(() => receiver.requests.some(({ path }) => path === '/flooded'), { timeout: 10_000 }).toBe(true)
  let looks = 0
  const look = ({ sql }: { sql: string }) =>
    (looks += Number(sql.includes('FROM delivery_queue q FORCE INDEX (PRIMARY)')))
  knex.on('query', look)
  const socket = createSocket('udp4')
  const startedAt = performance.now()
  while (performance.now() - startedAt < 1000) {
    for (let n = 0; n < 10; n++) socket.send(hintDatagram({ kind: 'lanes' }), daemon.port, '127.0.0.1')
    await new Promise((resolve) => setTimeout(resolve, 2))
  }
  const tenths = (performance.now() - startedAt) / 100
  knex.off('query', look)
  socket.close()
  expect(looks).toBeGreaterThan(2)
  // The webhook of the test before has got it as well.
  expect(looks).toBeLessThan(2 * tenths + 10)
})
