import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { checkWebhookHealth } from '../../daemon/jobs/check-webhook-health.ts'
import { sendMails } from '../../daemon/jobs/send-mails.ts'
import { createMailTransport } from '../../daemon/mail-transport.ts'
import { startHttpsReceiver, type Answer, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { createLogger } from '../../src/logger.ts'
import { routeEvents } from '../../src/events/event-routing.ts'
import { newId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { startSmtpServer, type TestSmtpServer } from '../support/smtp.ts'
import { createTestTls } from '../support/tls.ts'

const log = createLogger('daemon', 'silent')
const HOUR_MS = 3_600_000

let db: TestDatabase
let tls: Awaited<ReturnType<typeof createTestTls>>
let world: DeliveryWorld
let receiver: HttpsReceiver
let smtp: TestSmtpServer
let answer: () => Answer

beforeAll(async () => {
  tls = await createTestTls()
  db = await openTestDatabase()
})
afterAll(async () => {
  await db.close()
  tls.remove()
})
beforeEach(async () => {
  answer = () => ({ status: 500, body: 'patient Asha' })
  receiver = await startHttpsReceiver(tls, () => answer())
  smtp = await startSmtpServer()
  world = await new DeliveryWorld(db.database).open()
})
afterEach(async () => {
  await world.close()
  await receiver.close()
  await smtp.close()
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
const mailRows = (webhookId: string) => knex()('mails').where({ webhook_id: webhookId }).orderBy('id')
const until = (condition: () => Promise<boolean>) =>
  expect.poll(condition, { timeout: 10_000, interval: 20 }).toBe(true)

/** A webhook with one failed attempt, that long ago: the rest of its history is waited for by the test. */
async function failingFor(hours: number, wish: { corporateId?: string } = {}) {
  const webhook = await world.webhook({
    endpoint: `${receiver.url}/hooks`,
    events: ['lead.created', 'bill.created'],
    ...wish,
  })
  await knex()('webhooks')
    .where({ id: webhook.id })
    .update({
      first_failure_at: new Date(world.clock.nowMs() - hours * HOUR_MS),
      failed_attempts: 6,
      last_error: 'HTTP status 502',
    })
  return webhook
}

describe('a failed attempt', () => {
  test('at 12 hours writes one warning mail, and the next one writes none', async () => {
    const webhook = await failingFor(12)
    await world.daemon(tls.caFile, { SMTP_URL: smtp.url })
    await world.event()
    await until(async () => (await mailRows(webhook.id)).length === 1)
    await world.event()
    await until(async () => (await webhookRow(webhook.id)).failed_attempts === 8)
    expect(await mailRows(webhook.id)).toMatchObject([
      { kind: 'warning', failed_attempts: 7, last_error: 'HTTP status 500', recipient: 'account-admin@example.com' },
    ])
    expect(await webhookRow(webhook.id)).toMatchObject({ state: 'active' })
  })

  test('before 12 hours writes none', async () => {
    const webhook = await failingFor(11.99)
    await world.daemon(tls.caFile)
    await world.event()
    await until(async () => (await webhookRow(webhook.id)).failed_attempts === 7)
    expect(await mailRows(webhook.id)).toEqual([])
  })

  test('before 24 hours deletes nobody', async () => {
    const webhook = await failingFor(23.99)
    await world.daemon(tls.caFile)
    await world.event()
    await until(async () => (await webhookRow(webhook.id)).failed_attempts === 7)
    expect((await mailRows(webhook.id)).map(({ kind }) => kind)).toEqual(['warning'])
    expect(await webhookRow(webhook.id)).toMatchObject({ state: 'active' })
  })

  test('at 24 hours deletes: the warning that is missing comes first, waiting copies are discarded, nothing is sent any more', async () => {
    const webhook = await failingFor(24)
    await world.daemon(tls.caFile)
    await Promise.all(Array.from({ length: 20 }, () => world.event()))
    await until(async () => (await webhookRow(webhook.id)).state === 'auto_deleted')
    await until(async () => (await knex()('delivery_queue').where({ webhook_id: webhook.id })).length === 0)
    expect((await mailRows(webhook.id)).map(({ kind }) => kind)).toEqual(['warning', 'deletion'])
    const row = await webhookRow(webhook.id)
    expect(row).toMatchObject({ epoch: 2, failed_attempts: 7, last_error: 'HTTP status 500' })
    expect(row.deactivated_at).toBeInstanceOf(Date)
    expect(row.inactive_from).toBeInstanceOf(Date)
    const deliveries = await knex()('deliveries').where({ webhook_id: webhook.id })
    expect(deliveries.length).toBe(20)
    expect(new Set(deliveries.map(({ status }) => status))).toEqual(new Set(['discarded']))
    const sent = receiver.requests.length
    const late = await world.event()
    await world.settled()
    expect(await knex()('delivery_queue').where({ event_id: late.id })).toEqual([])
    expect(receiver.requests).toHaveLength(sent)
  })

  test('of one webhook changes no other, also on the same URL', async () => {
    const failing = await failingFor(24)
    const other = await world.webhook({ endpoint: `${receiver.url}/hooks`, events: ['booking.created'] })
    await world.daemon(tls.caFile)
    await world.event()
    await until(async () => (await webhookRow(failing.id)).state === 'auto_deleted')
    expect(await webhookRow(other.id)).toMatchObject({ state: 'active', first_failure_at: null, failed_attempts: 0 })
  })

  test('frees the party’s event for another webhook when it deletes', async () => {
    const corporateId = newId(5)
    const webhook = await failingFor(24, { corporateId })
    await knex()('webhook_party_guards').insert({
      account_id: world.accountId,
      lab_id: world.labId,
      party_id: corporateId,
      event_type: 'lead.created',
      webhook_id: webhook.id,
    })
    await world.daemon(tls.caFile)
    await world.event({ corporateId })
    await until(async () => (await webhookRow(webhook.id)).state === 'auto_deleted')
    expect(await knex()('webhook_party_guards').where({ webhook_id: webhook.id })).toEqual([])
  })
})

test('a single 2xx after 30 hours of failure clears everything, and no mail is written', async () => {
  const webhook = await failingFor(30)
  await knex()('webhooks').where({ id: webhook.id }).update({ warned_at: world.clock.now() })
  answer = () => ({ status: 204 })
  await world.daemon(tls.caFile)
  await world.event()
  await until(async () => (await webhookRow(webhook.id)).first_failure_at === null)
  expect(await webhookRow(webhook.id)).toMatchObject({
    state: 'active',
    failed_attempts: 0,
    last_error: null,
    warned_at: null,
  })
  expect(await mailRows(webhook.id)).toEqual([])
})

describe('the minute’s check', () => {
  const check = () => checkWebhookHealth({ database: db.database, clock: world.clock, log, limits: world.config() })()

  test('warns at 23 hours when no attempt did, once, also when several daemons check at once', async () => {
    const webhook = await failingFor(23)
    await Promise.all([check(), check(), check()])
    await check()
    expect(await mailRows(webhook.id)).toMatchObject([
      { kind: 'warning', failed_attempts: 6, last_error: 'HTTP status 502' },
    ])
    expect(await webhookRow(webhook.id)).toMatchObject({ state: 'active' })
  })

  test('warns nobody before, and deletes nobody ever', async () => {
    const early = await failingFor(22.99)
    const late = await failingFor(100)
    await check()
    expect(await mailRows(early.id)).toEqual([])
    expect((await mailRows(late.id)).map(({ kind }) => kind)).toEqual(['warning'])
    expect(await webhookRow(late.id)).toMatchObject({ state: 'active' })
  })
})

describe('a mail', () => {
  const from = 'Lab Service <service@lab.example>'
  const transport = () =>
    createMailTransport({ smtpUrl: smtp.url, from, dataDir: '/nonexistent', now: () => world.clock.now() })
  const send = () => sendMails({ database: db.database, clock: world.clock, log, transport: transport(), from })()
  const warn = (id: string) =>
    checkWebhookHealth({ database: db.database, clock: world.clock, log, limits: world.config() })().then(() =>
      mailRows(id),
    )

  test('shows endpoint, events, since when, how often and why, to one recipient, with nothing of a patient', async () => {
    const webhook = await failingFor(23)
    const [row] = await warn(webhook.id)
    await send()
    expect(smtp.mails).toHaveLength(1)
    const { raw, recipients } = smtp.mails[0]!
    expect(recipients).toEqual(['account-admin@example.com'])
    for (const text of [
      `Endpoint: ${receiver.url}/hooks`,
      'Events: lead.created, bill.created',
      `Failing since: ${row.failing_since.toISOString()}`,
      'Failed attempts: 6',
      'Last error: HTTP status 502',
    ]) {
      expect(raw.replace(/=\r?\n/g, '')).toContain(text)
    }
    expect(raw).not.toContain('Asha')
    expect(raw).not.toContain('Party')
    expect(raw).toContain('Webhook failing')
  })

  test('names the party and the number of webhooks when several share the URL, a mail for each', async () => {
    const corporateId = newId(7)
    await knex()('parties').insert({
      id: corporateId,
      account_id: world.accountId,
      kind: 'corporate',
      name: 'Acme <b>Insurance</b>\r\nBcc: x@example.com',
      created_at: world.clock.now(),
    })
    const ofParty = await failingFor(23, { corporateId })
    const catchAll = await failingFor(23)
    await warn(ofParty.id)
    await send()
    expect(smtp.mails).toHaveLength(2)
    expect(await mailRows(ofParty.id)).toMatchObject([
      { webhooks_on_url: 2, party_name: expect.stringContaining('Acme') },
    ])
    expect(await mailRows(catchAll.id)).toMatchObject([{ webhooks_on_url: 2, party_name: null }])
    const all = smtp.mails.map(({ raw }) => raw.replace(/=\r?\n/g, '')).join('\n')
    expect(all).toContain('Party: no party')
    expect(all).toContain('Webhooks on this URL: 2')
    expect(all).not.toMatch(/^bcc:/im)
    // The plain part shows the name as it is; the other one must not contain its markup.
    expect(all).toContain('Acme &#60;b&#62;Insurance')
    for (const { recipients } of smtp.mails) expect(recipients).toHaveLength(1)
  })

  test('goes to the lab’s admin where the lab has one', async () => {
    await knex()('labs').where({ id: world.labId }).update({ admin_email: 'lab-admin@example.com' })
    await warn((await failingFor(23)).id)
    await send()
    expect(smtp.mails[0]!.recipients).toEqual(['lab-admin@example.com'])
  })

  test('that is not taken is sent again under the same Message-ID until it is', async () => {
    const webhook = await failingFor(23)
    await warn(webhook.id)
    smtp.refusing = true
    await send()
    await send()
    expect(await mailRows(webhook.id)).toMatchObject([{ tries: 1, sent_at: null }])
    smtp.refusing = false
    await knex()('mails').update({ due_at: world.clock.now() })
    await send()
    await knex()('mails').update({ due_at: world.clock.now(), sent_at: null })
    await send()
    expect(smtp.mails).toHaveLength(2)
    expect(smtp.mails[0]!.messageId).toMatch(/^<[0-9a-z]{26}@lab\.example>$/)
    expect(smtp.mails[1]!.messageId).toBe(smtp.mails[0]!.messageId)
    await send()
    expect(smtp.mails).toHaveLength(2)
  })

  test('is sent once by several daemons', async () => {
    await warn((await failingFor(23)).id)
    await Promise.all(Array.from({ length: 8 }, send))
    expect(smtp.mails).toHaveLength(1)
  })
})

test('events of the time in which a webhook was deleted have no copy', async () => {
  const webhook = await failingFor(24)
  await world.daemon(tls.caFile)
  await world.event()
  await until(async () => (await webhookRow(webhook.id)).state === 'auto_deleted')
  const event = await world.event()
  await routeEvents(db.database.batch, world.clock.now(), 100)
  expect(await knex()('delivery_queue').where({ event_id: event.id })).toEqual([])
  expect(await knex()('deliveries').where({ event_id: event.id })).toEqual([])
})
