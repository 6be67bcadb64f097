/**
 * Daemons whose database goes away: what they have sent they don't send again, and they don't take each other for dead.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connectDatabase, type Database } from '../../db/connection.ts'
import { startDatabaseProxy, type DatabaseProxy } from '../../scripts/crash/database-proxy.ts'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { monotonicMs } from '../../src/clock.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { createTestTls } from '../support/tls.ts'

/** A beat that stands still for five seconds means death. */
const OUTAGE_MS = 6500

let direct: TestDatabase
let tls: Awaited<ReturnType<typeof createTestTls>>
let receiver: HttpsReceiver
const proxies: DatabaseProxy[] = []
const databases: Database[] = []
const worlds: DeliveryWorld[] = []

beforeAll(async () => {
  tls = await createTestTls()
  direct = await openTestDatabase()
  receiver = await startHttpsReceiver(tls)
})
afterAll(async () => {
  for (const world of worlds) await world.close()
  for (const database of databases) await database.close()
  for (const proxy of proxies) proxy.close()
  await receiver.close()
  await direct.close()
  tls.remove()
})

/** A world whose every statement goes through a proxy of its own. */
async function proxiedWorld(): Promise<{ world: DeliveryWorld; proxy: DatabaseProxy }> {
  const proxy = await startDatabaseProxy(direct.mysqlUrl)
  const database = connectDatabase(proxy.mysqlUrl)
  const world = await new DeliveryWorld(database).open()
  proxies.push(proxy)
  databases.push(database)
  worlds.push(world)
  return { world, proxy }
}

async function until(holds: () => Promise<boolean>): Promise<void> {
  for (const endMs = monotonicMs() + 20_000; !(await holds());) {
    if (monotonicMs() > endMs) throw new Error('not within 20 s')
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

test('attempts whose commit is in doubt are recorded once, and their lane goes on', async () => {
  const { world, proxy } = await proxiedWorld()
  const { knex } = direct.database
  const webhook = await world.webhook({ endpoint: `${receiver.url}/doubt` })
  const daemon = await world.daemon(tls.caFile)
  let cuts = 0
  proxy.arm(
    { statement: new RegExp(`INSERT INTO (deliveries|earlier_attempts)[^]*'${webhook.id}'`), when: 'after' },
    (cut) => {
      cuts++
      cut()
    },
  )
  const first = await world.event()
  const second = await (async () => {
    await until(async () => cuts === 1)
    return world.event()
  })()
  await until(async () => (await knex('attempts').where({ webhook_id: webhook.id })).length === 2)
  const recorded = await knex('deliveries').where({ webhook_id: webhook.id }).orderBy('event_id').pluck('event_id')
  expect(recorded).toEqual([first.id, second.id])
  expect(receiver.requests.filter(({ path }) => path === '/doubt')).toHaveLength(2)
  // A result that stayed behind would hold the lane for ever, and keep the daemon from stopping.
  await until(async () => (await knex('lanes').where({ webhook_id: webhook.id, owner: null })).length === 1)
  await daemon.stop()
})

test('daemons that all lost sight of the database for a while go on as before when it is back', async () => {
  const one = await proxiedWorld()
  const two = await proxiedWorld()
  await one.world.daemon(tls.caFile)
  await two.world.daemon(tls.caFile)
  const { knex } = direct.database
  const beats = () => knex('daemons').orderBy('token').select('token', 'beat')
  const before = await beats()
  expect(before).toHaveLength(2)
  // Each has seen the other alive.
  await until(async () => (await beats()).every(({ beat }, n) => beat > before[n].beat + 1))
  one.proxy.mode = two.proxy.mode = 'reset'
  await new Promise((resolve) => setTimeout(resolve, OUTAGE_MS))
  const during = await beats()
  one.proxy.mode = 'pass'
  // The first one back looks at the other, whose beat has stood still.
  await until(async () => (await beats()).some(({ beat }, n) => beat > during[n].beat + 1))
  two.proxy.mode = 'pass'
  await until(async () => (await beats()).every(({ beat }, n) => beat > during[n].beat + 1))
  expect((await beats()).map(({ token }) => token)).toEqual(before.map(({ token }) => token))
}, 60_000)
