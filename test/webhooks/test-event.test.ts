/**
 * Sending a test is an addition of ours. Proves that the specification stays as it is beside it:
 * - "A delivery succeeds when the endpoint answers with a status in 200-299 within 10 seconds; otherwise it is failed": a
 *   test is sent like any other delivery.
 * - "any single 2xx … Failure record is cleared", "Failed deliveries are retried; the auto-deletion rules … apply": a test
 *   does neither (decisions: it counts neither as success nor as failure).
 * - "Event names accepted in `events`": a test is none of them.
 */
import { Webhook } from 'standardwebhooks'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import type { Party } from '../../src/catalogue/parties-repository.ts'
import { newId, publicEventId } from '../../src/ids.ts'
import { client, startTestApp, type TestApp } from '../support/app.ts'
import { autoDelete, buildAccount, buildLab, buildParty, subscribeBody, type TestAccount } from '../support/builders.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { createTestTls } from '../support/tls.ts'

describe('the operation', () => {
  let app: TestApp
  let catchAll: TestAccount
  let scoped: TestAccount
  let lab: Lab
  let scopedLab: Lab
  let corporate: Party
  let doctor: Party

  beforeAll(async () => {
    app = await startTestApp()
    catchAll = await buildAccount(app)
    scoped = await buildAccount(app, { mode: 'party_scoped' })
    lab = await buildLab(app, catchAll)
    scopedLab = await buildLab(app, scoped)
    corporate = await buildParty(app, scoped, 'corporate')
    doctor = await buildParty(app, scoped, 'doctor')
  })
  afterAll(() => app.close())

  const sendTest = (account: TestAccount, id: string, query: Record<string, string>) =>
    app.call('POST', `/client/events/testEvent/${id}`, { token: account.token, query })
  const subscribe = (account: TestAccount, body: Record<string, unknown>) =>
    app.call('POST', '/client/events/subscribe', { token: account.token, body })
  const subscribed = async (account: TestAccount, body: Record<string, unknown>) =>
    (await subscribe(account, body)).body.data

  test('queues one copy for this webhook alone, makes its lane due, and says under which id it goes', async () => {
    const webhook = await subscribed(catchAll, subscribeBody(lab))
    await subscribed(catchAll, subscribeBody(lab))
    const hints = app.hints()
    const { status, body } = await sendTest(catchAll, webhook._id, { labID: lab.id })
    expect([status, body]).toEqual([
      200,
      {
        success: true,
        message: 'Test event queued',
        data: { eventId: expect.stringMatching(/^evt_/), endpoint: webhook.endpoint },
      },
    ])
    const eventId = body.data.eventId.slice(4)
    expect(await app.database.knex('delivery_queue').where({ event_id: eventId })).toMatchObject([
      { webhook_id: webhook._id, due_at: app.clock.now(), attempts: 0, epoch: 1, is_test: 1 },
    ])
    expect(await app.database.knex('unrouted_events').where({ event_id: eventId })).toEqual([])
    const lane = await app.database.knex('lanes').where({ webhook_id: webhook._id }).first()
    expect(lane.due_at).toEqual(app.clock.now())
    expect(app.hints()).toBe(hints + 1)
  })

  test('its type is nothing that a webhook can subscribe to', async () => {
    const answer = await subscribe(catchAll, subscribeBody(lab, { events: ['webhook.test'] }))
    expect([answer.status, answer.body.error.fields[0].field]).toEqual([400, 'events.0'])
  })

  test('follows the party rule and the lab rule of deleting', async () => {
    const { _id } = await subscribed(scoped, subscribeBody(scopedLab, { organization: doctor.id }))
    const none = await sendTest(scoped, _id, { labID: scopedLab.id })
    expect([none.status, none.body.error.code]).toEqual([400, 'party_required'])
    expect((await sendTest(catchAll, _id, { labID: lab.id, organization: doctor.id })).status).toBe(400)
    expect((await sendTest(catchAll, _id, { labID: scopedLab.id })).status).toBe(403)
    expect((await sendTest(scoped, _id, { labID: scopedLab.id, corporateUser: corporate.id })).status).toBe(404)
    expect((await sendTest(scoped, _id, { labID: scopedLab.id, organization: doctor.id })).status).toBe(200)
  })

  test('is one and the same 404 for what is unknown, malformed, auto-deleted, deleted or of another account', async () => {
    const foreign = await subscribed(scoped, subscribeBody(await buildLab(app, scoped), { organization: doctor.id }))
    const gone = await subscribed(catchAll, subscribeBody(lab))
    const autoDeleted = await subscribed(catchAll, subscribeBody(lab))
    const query = { labID: lab.id }
    await app.call('DELETE', `/client/events/deleteEvent/${gone._id}`, { token: catchAll.token, query })
    await autoDelete(app, autoDeleted._id)
    const errors = new Set<string>()
    for (const id of [newId(0), 'x', '%00', foreign._id, gone._id, autoDeleted._id]) {
      const answer = await sendTest(catchAll, id, query)
      expect(answer.status).toBe(404)
      errors.add(JSON.stringify(answer.body.error))
    }
    expect([...errors]).toEqual(['{"details":"webhook not found","code":"not_found"}'])
  })
})

describe('a test delivery', () => {
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
  const attemptsOf = (eventId: string) => knex()('attempts').where({ event_id: eventId })
  async function ended(webhookId: string, eventId: string) {
    const find = () => knex()('deliveries').where({ webhook_id: webhookId, event_id: eventId }).first()
    await expect.poll(async () => (await find()) !== undefined, { timeout: 10_000, interval: 20 }).toBe(true)
    return find()
  }
  /** A webhook that has failed since so long ago that one more failed attempt would delete it. */
  async function failingWebhook() {
    const webhook = await world.webhook({ endpoint: receiver.url })
    await knex()('webhooks')
      .where({ id: webhook.id })
      .update({
        first_failure_at: new Date(world.clock.nowMs() - 100 * 3_600_000),
        failed_attempts: 6,
        last_error: 'HTTP status 502',
        warned_at: new Date(world.clock.nowMs() - 88 * 3_600_000),
      })
    return webhook
  }

  test('arrives at this webhook only, fits its schema, and the public library verifies it', async () => {
    const webhook = await world.webhook({ endpoint: `${receiver.url}/one` })
    await world.webhook({ endpoint: `${receiver.url}/other` })
    await world.daemon(tls.caFile)
    const eventId = await world.sendTestEvent(webhook.id)
    expect(await ended(webhook.id, eventId)).toMatchObject({ status: 'delivered', attempts: 1 })
    await world.settled()
    expect(receiver.requests.map(({ path }) => path)).toEqual(['/one'])
    const [request] = receiver.requests
    expect(request!.headers['webhook-id']).toBe(publicEventId(eventId))
    new Webhook(webhook.secret).verify(request!.body, request!.headers as Record<string, string>)
    const body = JSON.parse(request!.body.toString())
    client.checkSchema('#/components/schemas/WebhookTestEvent', body)
    expect(body).toMatchObject({ type: 'webhook.test', labID: world.labId, data: { test: { webhookId: webhook.id } } })
  })

  test('that succeeds does not clear the record of a failing webhook', async () => {
    const webhook = await failingWebhook()
    const before = await webhookRow(webhook.id)
    await world.daemon(tls.caFile)
    const eventId = await world.sendTestEvent(webhook.id)
    expect(await ended(webhook.id, eventId)).toMatchObject({ status: 'delivered', attempts: 1 })
    expect(await webhookRow(webhook.id)).toEqual(before)
    expect((await knex()('lanes').where({ webhook_id: webhook.id }).first()).eager_until).toBeNull()
  })

  test('that fails is never tried again, and makes no webhook failing', async () => {
    status = 500
    const webhook = await world.webhook({ endpoint: receiver.url })
    const before = await webhookRow(webhook.id)
    await world.daemon(tls.caFile, { RETRY_SCHEDULE: '0.05,0.05,0.05' })
    const eventId = await world.sendTestEvent(webhook.id)
    expect(await ended(webhook.id, eventId)).toMatchObject({ status: 'exhausted', attempts: 1 })
    expect(await attemptsOf(eventId)).toMatchObject([{ n: 1, class: expect.any(String), status: 500 }])
    expect(await knex()('delivery_queue').where({ webhook_id: webhook.id })).toEqual([])
    expect(await webhookRow(webhook.id)).toEqual(before)
    // An ordinary event behind it is delivered and retried as ever, and the test is not among the requests again.
    const event = await world.event()
    expect(await ended(webhook.id, event.id)).toMatchObject({ status: 'exhausted', attempts: 4 })
    const ids = receiver.requests.map(({ headers }) => headers['webhook-id'])
    expect(ids.filter((id) => id === publicEventId(eventId))).toHaveLength(1)
  })

  test('that fails after days of failing brings no mail and no deletion', async () => {
    status = 500
    const webhook = await failingWebhook()
    const before = await webhookRow(webhook.id)
    await world.daemon(tls.caFile)
    const eventId = await world.sendTestEvent(webhook.id)
    expect(await ended(webhook.id, eventId)).toMatchObject({ status: 'exhausted' })
    expect(await webhookRow(webhook.id)).toEqual(before)
    expect(await knex()('mails').where({ webhook_id: webhook.id })).toEqual([])
  })

  test('that waits when its webhook is deleted is discarded', async () => {
    const webhook = await world.webhook({ endpoint: receiver.url })
    const eventId = await world.sendTestEvent(webhook.id)
    await world.deleteWebhook(webhook.id)
    await world.daemon(tls.caFile)
    expect(await ended(webhook.id, eventId)).toMatchObject({ status: 'discarded', attempts: 0 })
    expect(receiver.requests).toEqual([])
  })
})
