/**
 * The database's host name, as that of a container: while it is started anew nobody knows it.
 */
import dns from 'node:dns'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connectDatabase, isConnectionFault, type Database } from '../../db/connection.ts'
import { startDatabaseProxy, type DatabaseProxy } from '../../scripts/crash/database-proxy.ts'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { createTestTls } from '../support/tls.ts'

const NAME = 'database.example.in'
const AWAY_MS = 1500

let direct: TestDatabase
let tls: Awaited<ReturnType<typeof createTestTls>>
let receiver: HttpsReceiver
let proxy: DatabaseProxy
let database: Database
let world: DeliveryWorld
let release: () => void = () => {}
/** What the system says when it is asked for the name. */
let nameFault: string | undefined

const systemLookup = dns.lookup

/** The one name of the database; all others go to the system. */
function lookup(host: string, options: dns.LookupOptions, done: (...found: unknown[]) => void): void {
  if (host !== NAME) return systemLookup(host, options, done)
  const fault = nameFault && Object.assign(new Error(`getaddrinfo ${nameFault} ${host}`), { code: nameFault })
  process.nextTick(() => {
    if (fault) done(fault)
    else if (options.all) done(null, [{ address: '127.0.0.1', family: 4 }])
    else done(null, '127.0.0.1', 4)
  })
}

beforeAll(async () => {
  dns.lookup = lookup as typeof dns.lookup
  tls = await createTestTls()
  direct = await openTestDatabase()
  receiver = await startHttpsReceiver(tls, async () => {
    await new Promise<void>((resolve) => (release = resolve))
    return { status: 204 }
  })
  proxy = await startDatabaseProxy(direct.mysqlUrl)
  const url = new URL(proxy.mysqlUrl)
  url.hostname = NAME
  database = connectDatabase(url.href)
  world = await new DeliveryWorld(database).open()
})
afterAll(async () => {
  await world.close()
  await database.close()
  proxy.close()
  await receiver.close()
  await direct.close()
  tls.remove()
  dns.lookup = systemLookup
})

test.each(['ENOTFOUND', 'EAI_AGAIN', 'EMFILE', 'ECONNREFUSED'])('%s is the fault of the database, not of a statement', (code) => {
  expect(isConnectionFault(Object.assign(new Error('x'), { code }))).toBe(true)
}) // prettier-ignore

test('a result that comes while nobody knows the name of the database is recorded when it is back, and sent once', async () => {
  const { knex } = direct.database
  const { id } = await world.webhook({ endpoint: `${receiver.url}/held` })
  const daemon = await world.daemon(tls.caFile)
  const event = await world.event()
  await receiver.arrived(1)
  proxy.mode = 'reset'
  nameFault = 'EAI_AGAIN'
  await new Promise((resolve) => setTimeout(resolve, AWAY_MS / 3))
  release()
  await new Promise((resolve) => setTimeout(resolve, AWAY_MS))
  nameFault = undefined
  proxy.mode = 'pass'
  const ended = () => knex('deliveries').where({ webhook_id: id }).pluck('event_id')
  await expect.poll(ended, { timeout: 15_000 }).toEqual([event.id])
  expect(receiver.requests).toHaveLength(1)
  await daemon.stop()
})
