/**
 * Proves of the specification, with a real daemon:
 * - "auto-deleted | PATCH /client/events/reactivateEvent/{_id} | … | active | Receives new events straight away."
 * - "Events created while a webhook was auto-deleted are not sent later."
 * - "Webhook removed, event delivery stops".
 */
import { Webhook } from 'standardwebhooks'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { publicEventId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld, type TestWebhook } from '../support/delivery-world.ts'
import { createTestTls } from '../support/tls.ts'

const HOUR_MS = 3_600_000

let db: TestDatabase
let tls: Awaited<ReturnType<typeof createTestTls>>
let world: DeliveryWorld
let receiver: HttpsReceiver
let status: number

beforeAll(async () => {
  tls = await createTestTls()
  db = await openTestDatabase()
})
afterAll(async () => {
  await db.close()
  tls.remove()
})
beforeEach(async () => {
  status = 500
  receiver = await startHttpsReceiver(tls, () => ({ status }))
  world = await new DeliveryWorld(db.database).open()
})
afterEach(async () => {
  await world.close()
  await receiver.close()
  for (const table of [
    'delivery_queue',
    'unrouted_events',
    'lanes',
    'webhooks',
    'webhook_events',
    'daemons',
    'mails',
  ]) {
    await db.database.knex(table).delete()
  }
})

const knex = () => db.database.knex
const webhookRow = (id: string) => knex()('webhooks').where({ id }).first()
const queueOf = (webhookId: string) => knex()('delivery_queue').where({ webhook_id: webhookId })
const until = (condition: () => Promise<boolean>) =>
  expect.poll(condition, { timeout: 10_000, interval: 20 }).toBe(true)

/** A webhook that one more failed attempt auto-deletes. */
async function lastChance(): Promise<TestWebhook> {
  const webhook = await world.webhook({ endpoint: receiver.url })
  await knex()('webhooks')
    .where({ id: webhook.id })
    .update({
      first_failure_at: new Date(world.clock.nowMs() - 24 * HOUR_MS),
      failed_attempts: 6,
      last_error: 'HTTP status 502',
      warned_at: new Date(world.clock.nowMs() - 12 * HOUR_MS),
    })
  return webhook
}

/** As the recorder does it, where no daemon runs. */
async function autoDelete(id: string): Promise<void> {
  await knex()('webhooks')
    .where({ id })
    .update({
      state: 'auto_deleted',
      epoch: knex().raw('epoch + 1'),
      inactive_from: knex().raw('UTC_TIMESTAMP(6)'),
      deactivated_at: world.clock.now(),
    })
}

/** What arrived since the list was cleared; a retry counts once. */
const idsReceived = () => [...new Set(receiver.requests.map(({ headers }) => headers['webhook-id']))]

describe('a webhook that was auto-deleted and reactivated', () => {
  test('gets the next event under its old secret, and neither what waited nor what happened in between', async () => {
    const webhook = await lastChance()
    const before = await world.event()
    await world.daemon(tls.caFile, { RETRY_SCHEDULE: '0.2' })
    await until(async () => (await webhookRow(webhook.id)).state === 'auto_deleted')
    const between = await world.event()
    await world.settled()
    await world.reactivateWebhook(webhook.id)
    status = 204
    receiver.requests.length = 0
    const next = await world.event()
    const [request] = await receiver.arrived(1)
    new Webhook(webhook.secret).verify(request!.body, request!.headers as Record<string, string>)
    await world.settled()
    expect(idsReceived()).toEqual([publicEventId(next.id)])
    expect(await queueOf(webhook.id)).toEqual([])
    const ended = await knex()('deliveries').where({ webhook_id: webhook.id }).select('event_id', 'status')
    expect(Object.fromEntries(ended.map((row) => [row.event_id, row.status]))).toEqual({
      [before.id]: 'discarded',
      [next.id]: 'delivered',
    })
    expect(await knex()('delivery_queue').where({ event_id: between.id })).toEqual([])
    expect(await webhookRow(webhook.id)).toMatchObject({ state: 'active', first_failure_at: null, failed_attempts: 0 })
  })

  test('starts a new failing period with its next failure', async () => {
    const webhook = await lastChance()
    await world.daemon(tls.caFile)
    await world.event()
    await until(async () => (await webhookRow(webhook.id)).state === 'auto_deleted')
    const reactivatedFromMs = world.clock.nowMs()
    await world.reactivateWebhook(webhook.id)
    await world.event()
    await until(async () => (await webhookRow(webhook.id)).failed_attempts === 1)
    const row = await webhookRow(webhook.id)
    expect([row.state, row.warned_at]).toEqual(['active', null])
    expect(row.first_failure_at.getTime()).toBeGreaterThanOrEqual(reactivatedFromMs)
  })

  test('while no daemon ran: copies that waited for a retry hours away are discarded at once, not then', async () => {
    const webhook = await world.webhook({ endpoint: receiver.url })
    status = 500
    const daemon = await world.daemon(tls.caFile)
    const waiting = await world.event()
    await until(async () => (await webhookRow(webhook.id)).failed_attempts === 1)
    await daemon.stop()
    await knex()('delivery_queue')
      .where({ event_id: waiting.id })
      .update({ due_at: new Date(world.clock.nowMs() + 5 * HOUR_MS) })
    const unrouted = await world.event()
    await autoDelete(webhook.id)
    await world.reactivateWebhook(webhook.id)
    status = 204
    receiver.requests.length = 0
    const next = await world.event()
    await world.daemon(tls.caFile)
    await until(async () => (await queueOf(webhook.id)).length === 0)
    await receiver.arrived(1)
    await world.settled()
    expect(idsReceived()).toEqual([publicEventId(next.id)])
    for (const { id } of [waiting, unrouted]) {
      expect(await knex()('deliveries').where({ event_id: id })).toMatchObject([{ status: 'discarded' }])
    }
    const lane = await knex()('lanes').where({ webhook_id: webhook.id }).first()
    expect(lane.clean_epoch).toBe((await webhookRow(webhook.id)).epoch)
  })

  test('within the moment of its deletion, over and over, never gets an old event', async () => {
    const webhook = await world.webhook({ endpoint: receiver.url })
    status = 204
    await world.daemon(tls.caFile)
    await world.daemon(tls.caFile)
    const allowed = new Set<string>()
    for (let round = 0; round < 10; round++) {
      const current = await Promise.all([world.event(), world.event()])
      for (const { id } of current) allowed.add(publicEventId(id))
      await autoDelete(webhook.id)
      await Promise.all([world.event(), world.event()])
      await world.reactivateWebhook(webhook.id)
    }
    const last = await world.event()
    allowed.add(publicEventId(last.id))
    await until(async () => idsReceived().includes(publicEventId(last.id)))
    await world.settled()
    for (const id of idsReceived()) expect(allowed).toContain(id)
    await until(async () => (await queueOf(webhook.id)).length === 0)
  })
})
