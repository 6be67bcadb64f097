/** A daemon that comes up late, or beside another one: what waited is judged by the database's clock, once. */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { startSmtpServer, type TestSmtpServer } from '../support/smtp.ts'
import { createTestTls } from '../support/tls.ts'

const HOUR_MS = 3_600_000

let db: TestDatabase
let tls: Awaited<ReturnType<typeof createTestTls>>
let world: DeliveryWorld
let receiver: HttpsReceiver
let smtp: TestSmtpServer
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
  smtp = await startSmtpServer()
  world = await new DeliveryWorld(db.database).open()
})
afterEach(async () => {
  await world.close()
  await receiver.close()
  await smtp.close()
  for (const table of 'delivery_queue unrouted_events lanes webhooks webhook_events daemons mails'.split(' ')) {
    await db.database.knex(table).delete()
  }
})

const knex = () => db.database.knex
const rowOf = (id: string) => knex()('webhooks').where({ id }).first()
const patient = { timeout: 20_000, interval: 30 }

/** Everything that the database knows happened that long ago: as if the clock had gone on while nobody worked. */
async function passHours(hours: number): Promise<void> {
  const ms = hours * HOUR_MS * 1000
  await knex()('webhooks').update({
    first_failure_at: knex().raw('first_failure_at - INTERVAL ? MICROSECOND', [ms]),
    active_from: knex().raw('active_from - INTERVAL ? MICROSECOND', [ms]),
  })
  await knex()('events').update({ recorded_at: knex().raw('recorded_at - INTERVAL ? MICROSECOND', [ms]) })
  await knex()('delivery_queue').update({ due_at: knex().raw('due_at - INTERVAL ? MICROSECOND', [ms]) })
  await knex()('lanes').update({ due_at: knex().raw('due_at - INTERVAL ? MICROSECOND', [ms]) })
}

/** One failed attempt and a daemon that stops; then events that nobody fans out, and hours. */
async function failThenSleep(hours: number) {
  const webhook = await world.webhook({ endpoint: `${receiver.url}/hooks` })
  const daemon = await world.daemon(tls.caFile, { SMTP_URL: smtp.url })
  await world.event()
  await expect.poll(async () => (await rowOf(webhook.id)).failed_attempts, patient).toBe(1)
  await daemon.stop()
  for (let n = 0; n < 5; n++) await world.event()
  await passHours(hours)
  return webhook
}

test('after a day away the first failed attempt deletes, with both mails; nothing more is sent', async () => {
  const webhook = await failThenSleep(25)
  expect(await rowOf(webhook.id)).toMatchObject({ state: 'active' })
  await world.daemon(tls.caFile, { SMTP_URL: smtp.url })
  await expect.poll(async () => (await rowOf(webhook.id)).state, patient).toBe('auto_deleted')
  const ended = async () => (await knex()('deliveries').where({ webhook_id: webhook.id })).map((row) => row.status)
  await expect.poll(ended, patient).toEqual(Array.from({ length: 6 }, () => 'discarded'))
  await expect.poll(() => smtp.mails.length, patient).toBe(2)
  const { deactivated_at: deactivatedAt } = await rowOf(webhook.id)
  const attempts = await knex()('attempts').where({ webhook_id: webhook.id })
  const lastStartMs = Math.max(...attempts.map((attempt) => attempt.started_at.getTime()))
  expect(lastStartMs).toBeLessThanOrEqual(deactivatedAt.getTime() + 1000)
  const sent = receiver.requests.length
  await world.event()
  await world.settled()
  expect(receiver.requests).toHaveLength(sent)
})

test('after a day away nobody is deleted whose endpoint answers again', async () => {
  const webhook = await failThenSleep(25)
  status = 204
  await world.daemon(tls.caFile, { SMTP_URL: smtp.url })
  const delivered = async () =>
    (await knex()('deliveries').where({ webhook_id: webhook.id, status: 'delivered' })).length
  await expect.poll(delivered, patient).toBe(6)
  expect(await rowOf(webhook.id)).toMatchObject({ state: 'active', first_failure_at: null, failed_attempts: 0 })
})

test('after twelve hours and a half away it warns with the first failed attempt, and after 23 by the clock alone', async () => {
  const webhook = await failThenSleep(12.5)
  const daemon = await world.daemon(tls.caFile, { SMTP_URL: smtp.url })
  const kinds = async (id: string) => (await knex()('mails').where({ webhook_id: id })).map((row) => row.kind)
  await expect.poll(() => kinds(webhook.id), patient).toEqual(['warning'])
  await daemon.stop()
  const silent = await world.webhook({ endpoint: `${receiver.url}/silent`, events: ['bill.created'] })
  const since = new Date(world.clock.nowMs() - 23 * HOUR_MS)
  await knex()('webhooks')
    .where({ id: silent.id })
    .update({ first_failure_at: since, failed_attempts: 3, last_error: 'HTTP status 500' })
  await world.daemon(tls.caFile, { SMTP_URL: smtp.url })
  await expect.poll(() => kinds(silent.id), patient).toEqual(['warning'])
  expect(await kinds(webhook.id)).toEqual(['warning'])
})

test('two that start at once send each event once and each mail once', async () => {
  status = 204
  const webhook = await world.webhook({ endpoint: `${receiver.url}/hooks` })
  const failing = await world.webhook({ endpoint: `${receiver.url}/failing`, events: ['bill.created'] })
  const since = new Date(world.clock.nowMs() - 23 * HOUR_MS)
  await knex()('webhooks')
    .where({ id: failing.id })
    .update({ first_failure_at: since, failed_attempts: 3, last_error: 'HTTP status 500' })
  const events = await Promise.all(Array.from({ length: 40 }, () => world.event()))
  await Promise.all([1, 2].map(() => world.daemon(tls.caFile, { SMTP_URL: smtp.url })))
  const delivered = async () =>
    (await knex()('deliveries').where({ webhook_id: webhook.id, status: 'delivered' })).length
  await expect.poll(delivered, patient).toBe(40)
  await expect.poll(() => smtp.mails.length, patient).toBe(1)
  const received = receiver.requests.map(({ headers }) => headers['webhook-id'])
  expect(received.sort()).toEqual(events.map(({ id }) => `evt_${id}`).sort())
  expect(await knex()('attempts').where({ webhook_id: webhook.id })).toHaveLength(40)
})
