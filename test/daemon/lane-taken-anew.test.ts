/**
 * A lane that a daemon loses and takes again, under the same token, while its recorder waits to be told that it was lost.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connectDatabase, type Database } from '../../db/connection.ts'
import { startDatabaseProxy, type DatabaseProxy } from '../../scripts/crash/database-proxy.ts'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { createTestTls } from '../support/tls.ts'

let db: TestDatabase
let tls: Awaited<ReturnType<typeof createTestTls>>
let proxy: DatabaseProxy
let database: Database
let world: DeliveryWorld
let receiver: HttpsReceiver
/** Of the requests that wait for one. */
const answers: (() => void)[] = []

beforeAll(async () => {
  tls = await createTestTls()
  db = await openTestDatabase()
  proxy = await startDatabaseProxy(db.mysqlUrl)
  database = connectDatabase(proxy.mysqlUrl)
  world = await new DeliveryWorld(database).open()
  receiver = await startHttpsReceiver(tls, async () => {
    await new Promise<void>((resolve) => answers.push(resolve))
    return { status: 204 }
  })
})
afterAll(async () => {
  await world.close()
  await database.close()
  await receiver.close()
  proxy.close()
  await db.close()
  tls.remove()
})

test('a lane that was taken anew is not lost for what an earlier run of it could not record', async () => {
  const { id } = await world.webhook({ endpoint: receiver.url })
  const daemon = await world.daemon(tls.caFile)
  const lost = () => world.logged.filter(({ event, webhookId }) => event === 'lane.lost' && webhookId === id)
  await world.event()
  await receiver.arrived(1)
  let asked = 0
  // Its look at the lanes sees it late, and its recorder is told later still, when its transaction has ended.
  proxy.delayOf = (text) => {
    if (/FROM lanes FORCE INDEX \(PRIMARY\)\s+WHERE webhook_id IN [^;]+ owner = [^;]+ FOR UPDATE/.test(text)) asked += 1
    if (asked === 1 && text.startsWith('ROLLBACK')) return 2500
    return asked === 0 && text.includes('from `lanes` as `l`') ? 400 : 0
  }
  await db.database.knex('lanes').where({ webhook_id: id }).update({ owner: null })
  answers.shift()!()
  await receiver.arrived(2)
  expect([asked, lost().length]).toEqual([1, 1])
  // Recorded when the recorder has been told of the first, unless that loses it.
  answers.shift()!()
  await world.settled()
  await daemon.stop()
  expect([receiver.requests.length, lost().length]).toEqual([2, 1])
})
