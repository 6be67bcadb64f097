import { afterAll, beforeAll, expect, test } from 'vitest'
import { deliverWebhook } from '../../daemon/jobs/deliver-webhook.ts'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { HandDaemon } from '../support/hand-daemon.ts'
import { startLanes, type RunningLanes } from '../support/lane-jobs.ts'
import { createTestTls } from '../support/tls.ts'

let db: TestDatabase
let world: DeliveryWorld
let tls: Awaited<ReturnType<typeof createTestTls>>
let receiver: HttpsReceiver
let running: RunningLanes

beforeAll(async () => {
  tls = await createTestTls()
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
  receiver = await startHttpsReceiver(tls)
  running = startLanes(world, tls.caFile)
})
afterAll(async () => {
  await running.stop()
  await world.close()
  await receiver.close()
  await db.close()
  tls.remove()
})

test('the job ends when all that was due has been sent and recorded, and its lane is free again', async () => {
  const { id } = await world.webhook({ endpoint: `${receiver.url}/ok` })
  const daemon = new HandDaemon(world)
  for (let n = 0; n < 5; n++) await world.event()
  await daemon.route()
  await deliverWebhook(running.lanes)(id)
  expect(receiver.requests).toHaveLength(5)
  expect(await daemon.waiting(id)).toEqual([])
  const { knex } = db.database
  expect(await knex('deliveries').where({ webhook_id: id }).pluck('status')).toEqual(Array(5).fill('delivered'))
  expect(await knex('lanes').where({ webhook_id: id }).first('owner', 'due_at')).toEqual({ owner: null, due_at: null })
})

test('a lane that another daemon owns is left to it, and nothing is sent until that one has gone', async () => {
  const { id } = await world.webhook({ endpoint: `${receiver.url}/other` })
  const other = new HandDaemon(world)
  await world.event()
  await other.route()
  expect(await other.take(id)).toBe(true)
  const before = receiver.requests.length
  await deliverWebhook(running.lanes)(id)
  expect(receiver.requests).toHaveLength(before)
  expect(await other.waiting(id)).toHaveLength(1)
  const { knex } = db.database
  expect(await knex('lanes').where({ webhook_id: id }).first('owner')).toEqual({ owner: other.token })
  await knex('lanes').where({ webhook_id: id }).update({ owner: null })
  await deliverWebhook(running.lanes)(id)
  expect(receiver.requests.slice(before).map(({ path }) => path)).toEqual(['/other'])
})
