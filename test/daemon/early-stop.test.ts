import { afterAll, beforeAll, expect, test } from 'vitest'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { HandDaemon } from '../support/hand-daemon.ts'
import { createTestTls } from '../support/tls.ts'

const WEBHOOKS = 60
const EVENTS = 40
/** Long enough that no webhook is done before the daemon is told to stop, also where this test seldom gets its turn. */
const FIRST_ANSWERS_MS = 2000
const ANSWER_MS = 100

let db: TestDatabase
let tls: Awaited<ReturnType<typeof createTestTls>>
let world: DeliveryWorld
let receiver: HttpsReceiver
let answerMs = FIRST_ANSWERS_MS

beforeAll(async () => {
  tls = await createTestTls()
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
  receiver = await startHttpsReceiver(tls, async () => {
    await new Promise((resolve) => setTimeout(resolve, answerMs))
    return { status: 204 }
  })
})
afterAll(async () => {
  await world.close()
  await receiver.close()
  await db.close()
  tls.remove()
})

test('a daemon that is told to stop while it takes its lanes finishes none of them first', async () => {
  const { knex } = db.database
  for (let n = 0; n < WEBHOOKS; n++) await world.webhook({ endpoint: `${receiver.url}/${n}` })
  for (let n = 0; n < EVENTS; n++) await world.event()
  await new HandDaemon(world).route()
  const daemon = await world.daemon(tls.caFile)
  const taken = async () => (await knex('lanes').whereNotNull('owner')).length
  await expect.poll(taken, { timeout: 10_000, interval: 1 }).toBeGreaterThan(0)
  await daemon.stop()
  answerMs = ANSWER_MS
  const waiting = await knex('delivery_queue').groupBy('webhook_id').select('webhook_id').count({ n: '*' })
  expect(waiting).toHaveLength(WEBHOOKS)
  expect(await taken()).toBe(0)
  // The next daemon sends the rest; each request of both is on record, so nothing was sent without need.
  const next = await world.daemon(tls.caFile)
  const delivered = async () => (await knex('deliveries').where({ status: 'delivered' })).length
  await expect.poll(delivered, { timeout: 40_000 }).toBe(WEBHOOKS * EVENTS)
  expect(receiver.requests).toHaveLength((await knex('attempts')).length)
  await next.stop()
}, 60_000)
