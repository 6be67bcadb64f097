/**
 * Proves of the specification, with a real daemon: "Events created while a webhook was auto-deleted are not sent later", also
 * not by hand; and that what was sent again by hand goes the way of every delivery.
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { listMissedEvents } from '../../src/deliveries/delivery-log-missed-repository.ts'
import { findLogWebhook, type LogWebhook } from '../../src/deliveries/delivery-log-webhooks-repository.ts'
import { missedPageOf } from '../../src/deliveries/delivery-log-rules.ts'
import { redeliver, startRecovery, stepRecovery } from '../../src/deliveries/recovery.ts'
import { findRecovery } from '../../src/deliveries/recovery-repository.ts'
import type { Recovery } from '../../src/deliveries/recovery-rules.ts'
import { newId, publicEventId } from '../../src/ids.ts'
import { recordDeletion } from '../../src/webhooks/webhooks-repository.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld, type TestWebhook } from '../support/delivery-world.ts'
import { buildEnded, buildEvent, buildPending } from '../support/logged-deliveries.ts'
import { isUnderWay } from '../support/under-way.ts'
import { createTestTls } from '../support/tls.ts'

const DAY_MS = 86_400_000

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
  status = 204
  receiver = await startHttpsReceiver(tls, () => ({ status }))
  world = await new DeliveryWorld(db.database).open()
})
afterEach(async () => {
  await world.close()
  await receiver.close()
  for (const table of [
    'delivery_queue',
    'deliveries',
    'lanes',
    'webhooks',
    'webhook_events',
    'recoveries',
    'daemons',
  ]) {
    await db.database.knex(table).delete()
  }
})

const knex = () => db.database.knex
const hoursAgo = (hours: number) => new Date(world.clock.nowMs() - hours * 3_600_000)
const eventAt = (atMs: number) => buildEvent(db.database, { accountId: world.accountId, labId: world.labId, atMs })
const idsReceived = () => receiver.requests.map(({ headers }) => headers['webhook-id'])
const deliveryOf = (webhook: TestWebhook, eventId: string) =>
  knex()('deliveries').where({ webhook_id: webhook.id, event_id: eventId }).first()
const until = (condition: () => Promise<boolean>) =>
  expect.poll(condition, { timeout: 10_000, interval: 20 }).toBe(true)

async function logOf(webhook: TestWebhook): Promise<LogWebhook> {
  return (await findLogWebhook(knex(), world.accountId, world.labId, webhook.id, 'whole_lab'))!
}
async function sendAgain(webhook: TestWebhook, eventId: string, allowSecondMessage = false): Promise<void> {
  const logged = await logOf(webhook)
  await db.database.transaction((trx) => redeliver(trx, logged, eventId, allowSecondMessage, world.clock.now()))
}
async function recover(webhook: TestWebhook, since: Date): Promise<Recovery> {
  const logged = await logOf(webhook)
  return db.database.transaction((trx) => startRecovery(trx, logged, since, world.clock.now()))
}
const recoveryRow = async (recovery: Recovery) => (await findRecovery(knex(), world.accountId, recovery.id))!
const ended = async (recovery: Recovery) => {
  await until(async () => (await recoveryRow(recovery)).state !== 'running')
  return recoveryRow(recovery)
}
/** As the recorder does it. */
async function autoDelete(webhook: TestWebhook): Promise<void> {
  await knex()('webhooks')
    .where({ id: webhook.id })
    .update({ state: 'auto_deleted', epoch: knex().raw('epoch + 1'), inactive_from: knex().raw('UTC_TIMESTAMP(6)') })
}
async function message(atMs: number, state: 'taken' | 'normal' | 'expired'): Promise<string> {
  const eventId = await eventAt(atMs)
  await knex()('messages').insert({
    event_id: eventId,
    account_id: world.accountId,
    lab_id: world.labId,
    state,
    created_at: new Date(atMs),
  })
  return eventId
}

describe('sending one delivery again', () => {
  test('goes the way of a retry: same webhook-id, the next number, and its end replaces the old one', async () => {
    const webhook = await world.webhook({ endpoint: receiver.url })
    await world.daemon(tls.caFile)
    const event = await world.event()
    await receiver.arrived(1)
    await until(async () => (await deliveryOf(webhook, event.id))?.status === 'delivered')
    await sendAgain(webhook, event.id)
    await receiver.arrived(2)
    await until(async () => (await deliveryOf(webhook, event.id))?.attempts === 2)
    expect(idsReceived()).toEqual([publicEventId(event.id), publicEventId(event.id)])
    const attempts = await knex()('attempts').where({ event_id: event.id }).orderBy('n')
    expect(attempts.map(({ n }) => n)).toEqual([1, 2])
  })

  test('is one attempt where the schedule has been used up, and counts against the webhook like every failure', async () => {
    const webhook = await world.webhook({ endpoint: receiver.url })
    const event = await eventAt(world.clock.nowMs() - DAY_MS)
    await buildEnded(knex(), webhook.id, event, 'exhausted', 9)
    status = 500
    await world.daemon(tls.caFile)
    await sendAgain(webhook, event)
    await receiver.arrived(1)
    await until(async () => (await deliveryOf(webhook, event))?.attempts === 10)
    expect(await deliveryOf(webhook, event)).toMatchObject({ status: 'exhausted' })
    expect(await knex()('delivery_queue').where({ event_id: event })).toEqual([])
    expect((await knex()('webhooks').where({ id: webhook.id }).first()).failed_attempts).toBe(1)
  })

  test('is refused for what is pending, of an inactive webhook, without its body, or unknown', async () => {
    const webhook = await world.webhook({ endpoint: receiver.url })
    const [pending, bodiless, discarded] = [await eventAt(1e12), await eventAt(2e12), await eventAt(3e12)]
    for (const event of [pending, bodiless, discarded]) await buildEnded(knex(), webhook.id, event, 'discarded')
    await knex()('event_bodies').where({ event_id: bodiless }).delete()
    await sendAgain(webhook, pending)
    await expect(sendAgain(webhook, pending)).rejects.toMatchObject({ code: 'invalid_state' })
    await expect(sendAgain(webhook, bodiless)).rejects.toMatchObject({ code: 'payload_expired' })
    await expect(sendAgain(webhook, newId(1))).rejects.toMatchObject({ code: 'not_found' })
    await autoDelete(webhook)
    await expect(sendAgain(webhook, discarded)).rejects.toMatchObject({ code: 'invalid_state' })
    await db.database.transaction((trx) => recordDeletion(trx, webhook.id, world.clock.now()))
    await expect(sendAgain(webhook, discarded)).rejects.toMatchObject({ code: 'invalid_state' })
  })

  test('takes its lane before its message, as the recorder does: each would wait for the other', async () => {
    const webhook = await world.webhook({ endpoint: receiver.url })
    const event = await message(world.clock.nowMs() - 1000, 'expired')
    await buildEnded(knex(), webhook.id, event, 'discarded')
    const sending = await db.database.transaction(async (trx) => {
      await trx('lanes').where({ webhook_id: webhook.id }).forUpdate().first('webhook_id')
      const waiting = sendAgain(webhook, event)
      await until(() => isUnderWay(knex(), 'select `webhook_id` from `lanes`'))
      await trx.raw('SELECT state FROM messages WHERE event_id = ? FOR UPDATE NOWAIT', [event])
      return { waiting }
    })
    await sending.waiting
    expect(await knex()('delivery_queue').where({ event_id: event }).pluck('webhook_id')).toEqual([webhook.id])
  })

  test('of a message that has gone out needs a word, one that nobody sent does not', async () => {
    const webhook = await world.webhook({ endpoint: receiver.url })
    for (const state of ['taken', 'normal', 'expired'] as const) {
      const event = await message(world.clock.nowMs() - 1000, state)
      await buildEnded(knex(), webhook.id, event, 'discarded')
      const plain = sendAgain(webhook, event)
      if (state === 'expired') await plain
      else {
        await expect(plain).rejects.toMatchObject({ code: 'message_already_sent' })
        await sendAgain(webhook, event, true)
      }
      expect(await knex()('delivery_queue').where({ event_id: event })).toHaveLength(1)
    }
  })
})

describe('a recovery', () => {
  test('sends again what ended without a 2xx since its time, says what it leaves out, and sends nothing else', async () => {
    const webhook = await world.webhook({ endpoint: receiver.url })
    const at = (hours: number) => hoursAgo(hours).getTime()
    const [tooOld, exhausted, delivered, discarded] = [
      await eventAt(at(50)),
      await eventAt(at(40)),
      await eventAt(at(39)),
      await eventAt(at(38)),
    ]
    const sent = await message(at(37), 'normal')
    const bodiless = await eventAt(at(36))
    await knex()('event_bodies').where({ event_id: bodiless }).delete()
    await buildEnded(knex(), webhook.id, delivered, 'delivered')
    for (const event of [tooOld, exhausted, discarded, sent, bodiless]) {
      await buildEnded(knex(), webhook.id, event, event === exhausted ? 'exhausted' : 'discarded')
    }
    const recovery = await recover(webhook, hoursAgo(48))
    await expect(recover(webhook, hoursAgo(1))).rejects.toMatchObject({ code: 'recovery_running' })
    await world.daemon(tls.caFile)
    const row = await ended(recovery)
    expect(row).toMatchObject({ state: 'completed', requeued: 2, skippedMessages: 1, skippedExpired: 1, missed: 0 })
    await receiver.arrived(2)
    await world.settled()
    expect(idsReceived().sort()).toEqual([publicEventId(exhausted), publicEventId(discarded)].sort())
    expect(await deliveryOf(webhook, discarded)).toMatchObject({ status: 'delivered', attempts: 2 })
    expect(await deliveryOf(webhook, tooOld)).toMatchObject({ status: 'discarded' })
  })

  test('waits for copies that are still to be discarded, and counts the events of the time between', async () => {
    const webhook = await world.webhook({ endpoint: receiver.url })
    status = 500
    const daemon = await world.daemon(tls.caFile)
    const waiting = await world.event()
    await until(async () => (await knex()('webhooks').where({ id: webhook.id }).first()).failed_attempts === 1)
    await daemon.stop()
    await autoDelete(webhook)
    const missed = [await world.event(), await world.event()]
    await world.reactivateWebhook(webhook.id)
    status = 204
    receiver.requests.length = 0
    const recovery = await recover(webhook, hoursAgo(1))
    await world.daemon(tls.caFile)
    expect(await ended(recovery)).toMatchObject({ state: 'completed', requeued: 1, missed: 2 })
    await receiver.arrived(1)
    await world.settled()
    expect(idsReceived()).toEqual([publicEventId(waiting.id)])
    const logged = await logOf(webhook)
    const { events } = await listMissedEvents(knex(), logged, missedPageOf({}))
    expect(events.map(({ eventId }) => eventId)).toEqual(
      missed
        .map(({ id }) => id)
        .sort()
        .reverse(),
    )
    await expect(sendAgain(webhook, missed[0]!.id)).rejects.toMatchObject({ code: 'missed_event' })
  })

  test('taken further by several daemons at once queues each copy once', async () => {
    const webhook = await world.webhook({ endpoint: receiver.url })
    const events: string[] = []
    for (let i = 0; i < 30; i++) events.push(await eventAt(hoursAgo(2).getTime() + i))
    for (const event of events) await buildEnded(knex(), webhook.id, event, 'exhausted', 9)
    const recovery = await recover(webhook, hoursAgo(3))
    const step = () => db.database.transaction((trx) => stepRecovery(trx, recovery, world.clock.now()))
    await Promise.all([step(), step(), step()])
    expect(await knex()('delivery_queue').where({ webhook_id: webhook.id })).toHaveLength(30)
    while ((await step()) !== 'ended');
    expect(await recoveryRow(recovery)).toMatchObject({ state: 'completed', requeued: 30 })
  })

  test('waits for a result that is being recorded, and does not send again what it delivers', async () => {
    const webhook = await world.webhook({ endpoint: receiver.url })
    const event = await eventAt(hoursAgo(2).getTime())
    // Sent again once already: it waits, and what it ended as before still stands.
    await buildEnded(knex(), webhook.id, event, 'exhausted', 9)
    await buildPending(knex(), webhook.id, event, { dueAt: new Date(world.clock.nowMs() + 60_000), attempts: 9 })
    const recovery = await recover(webhook, hoursAgo(3))
    const copy = { webhook_id: webhook.id, event_id: event }
    let step!: Promise<string>
    await db.database.transaction(async (trx) => {
      // As the recorder does for a lane that it knows: the lane is locked, the webhook is not.
      await trx('lanes').where({ webhook_id: webhook.id }).forUpdate().first()
      await trx('deliveries').where(copy).update({ status: 'delivered', attempts: 10 })
      step = db.database.transaction((other) => stepRecovery(other, recovery, world.clock.now()))
      const first = await Promise.race([step, new Promise((resolve) => setTimeout(resolve, 500, 'waits'))])
      expect(first).toBe('waits')
      await trx('delivery_queue').where(copy).delete()
    })
    await step
    expect(await knex()('delivery_queue').where(copy)).toEqual([])
    expect(await recoveryRow(recovery)).toMatchObject({ requeued: 0 })
    await knex()('deliveries').where(copy).delete()
  })

  test('leaves a step undone as a whole when it is cut off, and goes on behind the last one', async () => {
    const webhook = await world.webhook({ endpoint: receiver.url })
    const ids = Array.from({ length: 501 }, (_, i) => newId(hoursAgo(2).getTime() + i))
    const event = { account_id: world.accountId, lab_id: world.labId, type: 'lead.created', recorded_at: hoursAgo(2) }
    const copy = { webhook_id: webhook.id, status: 'exhausted', attempts: 9, ended_at: hoursAgo(1) }
    await knex()('events').insert(ids.map((id) => ({ ...event, id, subject_id: id })))
    await knex()('event_bodies').insert(ids.map((id) => ({ event_id: id, body: '{}' })))
    await knex()('deliveries').insert(ids.map((id) => ({ ...copy, event_id: id })))
    const recovery = await recover(webhook, hoursAgo(3))
    const queued = async () => (await knex()('delivery_queue').where({ webhook_id: webhook.id })).length
    const step = () => db.database.transaction((trx) => stepRecovery(trx, recovery, world.clock.now()))
    await step()
    expect([await queued(), (await recoveryRow(recovery)).requeued]).toEqual([500, 500])
    const cut = db.database.transaction(async (trx) => {
      await stepRecovery(trx, recovery, world.clock.now())
      throw new Error('killed')
    })
    await expect(cut).rejects.toThrow('killed')
    expect([await queued(), (await recoveryRow(recovery)).requeued]).toEqual([500, 500])
    while ((await step()) !== 'ended');
    expect([await queued(), (await recoveryRow(recovery)).requeued]).toEqual([501, 501])
  })

  test('ends where its webhook goes', async () => {
    const webhook = await world.webhook({ endpoint: receiver.url })
    await buildEnded(knex(), webhook.id, await eventAt(hoursAgo(2).getTime()), 'exhausted', 9)
    const recovery = await recover(webhook, hoursAgo(3))
    await autoDelete(webhook)
    await world.daemon(tls.caFile)
    expect(await ended(recovery)).toMatchObject({ state: 'stopped', requeued: 0 })
  })
})
