import { afterAll, beforeAll, expect, test } from 'vitest'
import { retryWebhook } from '../../daemon/jobs/retry-webhook.ts'
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

test('a failing webhook that answers again gets all that waits, also what was not due yet, and is healthy', async () => {
  const { id } = await world.webhook({ endpoint: `${receiver.url}/again` })
  const daemon = new HandDaemon(world)
  for (let n = 0; n < 3; n++) await world.event()
  await daemon.route()
  expect(await daemon.take(id)).toBe(true)
  const failed = await daemon.waiting(id)
  await daemon.record(failed.slice(1).map((copy) => ({ copy, ok: false })))
  const { knex } = db.database
  expect((await knex('webhooks').where({ id }).first('first_failure_at')).first_failure_at).not.toBeNull()
  await knex('lanes').where({ webhook_id: id }).update({ owner: null })
  await retryWebhook(running.lanes)(id)
  expect(receiver.requests).toHaveLength(3)
  expect(await daemon.waiting(id)).toEqual([])
  expect((await knex('webhooks').where({ id }).first('first_failure_at')).first_failure_at).toBeNull()
})
