/**
 * A daemon that can't come to its end in the time that it has: the database is gone, and what its endpoint answered is not on disk.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startDatabaseProxy, type DatabaseProxy } from '../../scripts/crash/database-proxy.ts'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { daemonProcesses, exited, type DaemonProcesses } from '../support/daemon-process.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { createTestTls } from '../support/tls.ts'

let db: TestDatabase
let tls: Awaited<ReturnType<typeof createTestTls>>
let receiver: HttpsReceiver
let proxy: DatabaseProxy
let world: DeliveryWorld
let daemons: DaemonProcesses

beforeAll(async () => {
  tls = await createTestTls()
  db = await openTestDatabase()
  proxy = await startDatabaseProxy(db.mysqlUrl)
  receiver = await startHttpsReceiver(tls, async () => {
    proxy.mode = 'reset'
    return { status: 204 }
  })
  world = await new DeliveryWorld(db.database).open()
  daemons = daemonProcesses(proxy.mysqlUrl, tls.caFile)
})
afterAll(async () => {
  daemons.close()
  proxy.close()
  await world.close()
  await receiver.close()
  await db.close()
  tls.remove()
})

test('it says what it still waited for, for how long, and which daemon it is', async () => {
  await world.webhook({ endpoint: receiver.url })
  const daemon = await daemons.start({ LOG_LEVEL: 'warn', DELIVERY_ALLOW_CIDRS: '127.0.0.0/8' })
  let said = ''
  daemon.stderr!.on('data', (data: Buffer) => (said += data))
  const [token] = await db.database.knex('daemons').pluck('token')
  await world.event()
  await receiver.arrived(1)
  daemon.kill('SIGTERM')
  expect(await exited(daemon)).toBe(1)
  const lines = said.trim().split('\n').map((line) => JSON.parse(line)) // prettier-ignore
  expect(lines.find(({ event }) => event === 'daemon.stop_timed_out')).toMatchObject({
    daemon: token,
    state: 'lanes',
    lanes: 1,
    deliveries: 0,
    batch: 1,
    durationMs: 15_000,
  })
}, 60_000)
