/**
 * Events from before a deletion that are routed after the reactivation: they are never sent, and hold up nothing.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { createTestTls } from '../support/tls.ts'

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

test('an event that is routed so late into an empty lane is discarded, and the next one is sent', async () => {
  const { knex } = db.database
  const { id } = await world.webhook({ endpoint: receiver.url })
  const of = () => knex('webhooks').where({ id })
  const earlier = (column: string) => knex.raw(`${column} - INTERVAL 10 MINUTE`)
  await of().update({ created_at: earlier('created_at'), active_from: earlier('active_from') })
  // Recorded, and left out for now.
  const old = await world.event()
  const late = await knex('unrouted_events')
  await knex('unrouted_events').delete()
  await of().update({
    state: 'auto_deleted',
    epoch: knex.raw('epoch + 1'),
    inactive_from: knex.raw('UTC_TIMESTAMP(6)'),
    deactivated_at: knex.raw('UTC_TIMESTAMP(3)'),
  })
  await new Promise((resolve) => setTimeout(resolve, 50))
  await world.reactivateWebhook(id)
  const { epoch } = await of().first('epoch')
  await world.daemon(tls.caFile)
  const lane = () => knex('lanes').where({ webhook_id: id }).first('owner', 'clean_epoch')
  await expect.poll(lane, { timeout: 10_000 }).toEqual({ owner: null, clean_epoch: epoch })

  await knex('unrouted_events').insert(late)
  const statusOf = async (eventId: string) =>
    (await knex('deliveries').where({ webhook_id: id, event_id: eventId }).first('status'))?.status
  await expect.poll(() => statusOf(old.id), { timeout: 10_000 }).toBe('discarded')
  const next = await world.event()
  await expect.poll(() => statusOf(next.id), { timeout: 10_000 }).toBe('delivered')
  expect(receiver.requests).toHaveLength(1)
})
