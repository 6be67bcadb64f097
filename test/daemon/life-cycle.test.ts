import { describe, expect, test } from 'vitest'
import { routeEvents } from '../../src/events/event-routing.ts'
import { newId } from '../../src/ids.ts'
import { failingWebhooks } from '../support/failing-webhooks.ts'

const own = failingWebhooks()
const until = (condition: () => Promise<boolean>) =>
  expect.poll(condition, { timeout: 10_000, interval: 20 }).toBe(true)

describe('a failed attempt', () => {
  test('at 12 hours writes one warning mail, and the next one writes none', async () => {
    const webhook = await own.failingFor(12)
    await own.world.daemon(own.tls.caFile, { SMTP_URL: own.smtp.url })
    await own.world.event()
    await until(async () => (await own.mailRows(webhook.id)).length === 1)
    await own.world.event()
    await until(async () => (await own.webhookRow(webhook.id)).failed_attempts === 8)
    expect(await own.mailRows(webhook.id)).toMatchObject([
      { kind: 'warning', failed_attempts: 7, last_error: 'HTTP status 500', recipient: 'account-admin@example.com' },
    ])
    expect(await own.webhookRow(webhook.id)).toMatchObject({ state: 'active' })
  })

  test('before 12 hours writes none', async () => {
    const webhook = await own.failingFor(11.99)
    await own.world.daemon(own.tls.caFile)
    await own.world.event()
    await until(async () => (await own.webhookRow(webhook.id)).failed_attempts === 7)
    expect(await own.mailRows(webhook.id)).toEqual([])
  })

  test('before 24 hours deletes nobody', async () => {
    const webhook = await own.failingFor(23.99)
    await own.world.daemon(own.tls.caFile)
    await own.world.event()
    await until(async () => (await own.webhookRow(webhook.id)).failed_attempts === 7)
    expect((await own.mailRows(webhook.id)).map(({ kind }) => kind)).toEqual(['warning'])
    expect(await own.webhookRow(webhook.id)).toMatchObject({ state: 'active' })
  })

  test('at 24 hours deletes: the warning that is missing comes first, waiting copies are discarded, nothing is sent any more', async () => {
    const webhook = await own.failingFor(24)
    // Before the daemon comes up: none of them is to be recorded behind the deletion.
    await Promise.all(Array.from({ length: 20 }, () => own.world.event()))
    await own.world.daemon(own.tls.caFile)
    await until(async () => (await own.webhookRow(webhook.id)).state === 'auto_deleted')
    await until(async () => (await own.knex()('delivery_queue').where({ webhook_id: webhook.id })).length === 0)
    expect((await own.mailRows(webhook.id)).map(({ kind }) => kind)).toEqual(['warning', 'deletion'])
    const row = await own.webhookRow(webhook.id)
    expect(row).toMatchObject({ epoch: 2, failed_attempts: 7, last_error: 'HTTP status 500' })
    expect(row.deactivated_at).toBeInstanceOf(Date)
    expect(row.inactive_from).toBeInstanceOf(Date)
    const deliveries = await own.knex()('deliveries').where({ webhook_id: webhook.id })
    expect(deliveries.length).toBe(20)
    expect(new Set(deliveries.map(({ status }) => status))).toEqual(new Set(['discarded']))
    const sent = own.receiver.requests.length
    const late = await own.world.event()
    await own.world.settled()
    expect(await own.knex()('delivery_queue').where({ event_id: late.id })).toEqual([])
    expect(own.receiver.requests).toHaveLength(sent)
  })

  test('of one webhook changes no other, also on the same URL', async () => {
    const failing = await own.failingFor(24)
    const other = await own.world.webhook({ endpoint: `${own.receiver.url}/hooks`, events: ['booking.created'] })
    await own.world.daemon(own.tls.caFile)
    await own.world.event()
    await until(async () => (await own.webhookRow(failing.id)).state === 'auto_deleted')
    expect(await own.webhookRow(other.id)).toMatchObject({
      state: 'active',
      first_failure_at: null,
      failed_attempts: 0,
    })
  })

  test('frees the party’s event for another webhook when it deletes', async () => {
    const corporateId = newId(5)
    const webhook = await own.failingFor(24, { corporateId })
    await own.knex()('webhook_party_guards').insert({
      account_id: own.world.accountId,
      lab_id: own.world.labId,
      party_id: corporateId,
      event_type: 'lead.created',
      webhook_id: webhook.id,
    })
    await own.world.daemon(own.tls.caFile)
    await own.world.event({ corporateId })
    await until(async () => (await own.webhookRow(webhook.id)).state === 'auto_deleted')
    expect(await own.knex()('webhook_party_guards').where({ webhook_id: webhook.id })).toEqual([])
  })
})

test('a single 2xx after 30 hours of failure clears everything, and no mail is written', async () => {
  const webhook = await own.failingFor(30)
  await own.knex()('webhooks').where({ id: webhook.id }).update({ warned_at: own.world.clock.now() })
  own.answer = () => ({ status: 204 })
  await own.world.daemon(own.tls.caFile)
  await own.world.event()
  await until(async () => (await own.webhookRow(webhook.id)).first_failure_at === null)
  expect(await own.webhookRow(webhook.id)).toMatchObject({
    state: 'active',
    failed_attempts: 0,
    last_error: null,
    warned_at: null,
  })
  expect(await own.mailRows(webhook.id)).toEqual([])
})

test('events of the time in which a webhook was deleted have no copy', async () => {
  const webhook = await own.failingFor(24)
  await own.world.daemon(own.tls.caFile)
  await own.world.event()
  await until(async () => (await own.webhookRow(webhook.id)).state === 'auto_deleted')
  const event = await own.world.event()
  await routeEvents(own.db.database.batch, own.world.clock.now(), 100)
  expect(await own.knex()('delivery_queue').where({ event_id: event.id })).toEqual([])
  expect(await own.knex()('deliveries').where({ event_id: event.id })).toEqual([])
})
