import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { purgeExpired } from '../../daemon/jobs/purge-expired.ts'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { newId } from '../../src/ids.ts'
import { createLogger } from '../../src/logger.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { TestClock } from '../support/test-clock.ts'
import { createTestTls } from '../support/tls.ts'

const log = createLogger('daemon', 'silent')
const DAY_MS = 86_400_000
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
  status = 204
  receiver = await startHttpsReceiver(tls, () => ({ status }))
  world = await new DeliveryWorld(db.database).open()
})
afterEach(async () => {
  await world.close()
  await receiver.close()
  const tables =
    'delivery_queue unrouted_events lanes webhooks webhook_events webhook_secrets daemons mails events event_bodies deliveries earlier_attempts messages purge_runs'
  for (const table of tables.split(' ')) await db.database.knex(table).delete()
})

const knex = () => db.database.knex
const daysLater = (days: number) => new TestClock(new Date(world.clock.nowMs() + days * DAY_MS).toISOString())
const settings = { payloadRetentionDays: 30, logRetentionDays: 90 }
const purgeWith = (clock: TestClock, stopping = () => false) =>
  purgeExpired({ database: db.database, clock, log, settings, stopping })()
const purgeAfter = async (days: number) => {
  await knex()('purge_runs').delete()
  await purgeWith(daysLater(days))
}
const countsOf = async (eventId: string) => {
  const count = async (table: string, column: string) =>
    Number((await knex()(table).where(column, eventId).count({ n: '*' }).first())!.n)
  return {
    events: await count('events', 'id'),
    bodies: await count('event_bodies', 'event_id'),
    queued: await count('delivery_queue', 'event_id'),
    deliveries: await count('deliveries', 'event_id'),
    attempts: await count('attempts', 'event_id'),
  }
}

describe('a delivered event', () => {
  test('loses its payload after 30 days and stays in the log until 90 are over; then nothing of it is left', async () => {
    await world.webhook({ endpoint: `${receiver.url}/hooks` })
    await world.daemon(tls.caFile)
    const { id } = await world.event()
    await world.settled()
    await expect.poll(() => countsOf(id)).toMatchObject({ deliveries: 1 })
    await purgeAfter(29.9)
    expect(await countsOf(id)).toEqual({ events: 1, bodies: 1, queued: 0, deliveries: 1, attempts: 1 })
    await purgeAfter(30.1)
    expect(await countsOf(id)).toEqual({ events: 1, bodies: 0, queued: 0, deliveries: 1, attempts: 1 })
    await purgeAfter(89.9)
    expect(await countsOf(id)).toEqual({ events: 1, bodies: 0, queued: 0, deliveries: 1, attempts: 1 })
    await purgeAfter(90.1)
    expect(await countsOf(id)).toEqual({ events: 0, bodies: 0, queued: 0, deliveries: 0, attempts: 0 })
  })
})

describe('what is pending stays, however old it is', () => {
  test('an event that was not fanned out', async () => {
    const { id } = await world.event()
    await purgeAfter(400)
    expect(await countsOf(id)).toMatchObject({ events: 1, bodies: 1 })
  })

  test('a delivery that waits for a retry, with its payload and the attempts so far; the daemon that comes back sends it', async () => {
    status = 500
    const webhook = await world.webhook({ endpoint: `${receiver.url}/hooks` })
    const daemon = await world.daemon(tls.caFile)
    const { id } = await world.event()
    await expect.poll(() => countsOf(id)).toMatchObject({ attempts: 1, queued: 1 })
    await daemon.stop()
    await purgeAfter(400)
    expect(await countsOf(id)).toEqual({ events: 1, bodies: 1, queued: 1, deliveries: 0, attempts: 1 })
    status = 204
    await knex()('delivery_queue').update({ due_at: world.clock.now() })
    await knex()('lanes').where({ webhook_id: webhook.id }).update({ due_at: world.clock.now() })
    await world.daemon(tls.caFile)
    await expect.poll(() => countsOf(id), { timeout: 10_000 }).toMatchObject({ deliveries: 1, attempts: 2 })
  })

  test('an ended delivery that is sent again by hand right now', async () => {
    const webhook = await world.webhook({ endpoint: `${receiver.url}/hooks` })
    const daemon = await world.daemon(tls.caFile)
    const { id } = await world.event()
    await expect.poll(() => countsOf(id)).toMatchObject({ deliveries: 1 })
    await daemon.stop()
    // As sending it again does: the payload is locked before the delivery is pending.
    const trx = await knex().transaction()
    await trx('event_bodies').where({ event_id: id }).forUpdate().first()
    const purged = purgeAfter(400)
    await trx('delivery_queue').insert({
      webhook_id: webhook.id,
      due_at: world.clock.now(),
      event_id: id,
      attempts: 1,
      epoch: 1,
    })
    await purged
    await trx.commit()
    expect(await countsOf(id)).toMatchObject({ bodies: 1, queued: 1 })
    await purgeAfter(400)
    expect(await countsOf(id)).toEqual({ events: 1, bodies: 1, queued: 1, deliveries: 1, attempts: 1 })
  })

  test('a message that has still to go the normal way', async () => {
    const { id } = await world.event()
    await knex()('unrouted_events').delete()
    const now = world.clock.now()
    await knex()('messages').insert({
      event_id: id,
      account_id: world.accountId,
      lab_id: world.labId,
      state: 'normal',
      created_at: now,
      due_at: now,
    })
    await purgeAfter(400)
    expect(await countsOf(id)).toMatchObject({ events: 1, bodies: 1 })
    await knex()('messages').update({ due_at: null, sent_at: now })
    await purgeAfter(400)
    expect(await countsOf(id)).toMatchObject({ events: 0, bodies: 0 })
    expect(await knex()('messages')).toEqual([])
  })

  test('a mail that nobody took yet', async () => {
    const webhook = await world.webhook({ endpoint: `${receiver.url}/hooks` })
    const mail = (dueAt: Date | null, sentAt: Date | null) => ({
      id: newId(world.clock.nowMs()),
      kind: 'warning',
      account_id: world.accountId,
      webhook_id: webhook.id,
      recipient: 'a@example.com',
      lab_name: 'Lab',
      endpoint: 'https://a.example',
      events: 'lead.created',
      failing_since: world.clock.now(),
      failed_attempts: 1,
      last_error: 'x',
      webhooks_on_url: 1,
      created_at: world.clock.now(),
      due_at: dueAt,
      sent_at: sentAt,
    })
    await knex()('mails').insert([mail(world.clock.now(), null), mail(null, world.clock.now())])
    await purgeAfter(89.9)
    expect(await knex()('mails')).toHaveLength(2)
    await purgeAfter(90.1)
    expect(await knex()('mails')).toMatchObject([{ sent_at: null }])
  })
})

describe('a failing webhook', () => {
  /** Ended that many days ago, after two attempts. */
  async function ended(webhookId: string, daysAgo: number): Promise<string> {
    const at = new Date(world.clock.nowMs() - daysAgo * DAY_MS)
    const id = newId(at.getTime())
    await knex()('events').insert({
      id,
      account_id: world.accountId,
      lab_id: world.labId,
      type: 'lead.created',
      recorded_at: at,
      subject_id: id,
    })
    await knex()('deliveries').insert({
      webhook_id: webhookId,
      event_id: id,
      status: 'exhausted',
      attempts: 2,
      ended_at: at,
    })
    const attempt = {
      webhook_id: webhookId,
      event_id: id,
      started_at: at,
      recorded_at: at,
      duration_ms: 3,
      class: 'status',
    }
    const seq = Math.round(10_000 - daysAgo * 10)
    await knex()('earlier_attempts').insert([
      { ...attempt, n: 1, seq },
      { ...attempt, n: 2, seq: seq + 1 },
    ])
    return id
  }

  test('keeps what its health is replayed from, and no more; once it is well again all of it goes', async () => {
    const webhook = await world.webhook({ endpoint: `${receiver.url}/hooks` })
    const healthy = await world.webhook({ endpoint: `${receiver.url}/hooks` })
    const firstFailureAt = new Date(world.clock.nowMs() - 100 * DAY_MS)
    await knex()('webhooks').where({ id: webhook.id }).update({ first_failure_at: firstFailureAt, failed_attempts: 2 })
    const before = await ended(webhook.id, 102)
    const within = await ended(webhook.id, 99.9)
    const ofHealthy = await ended(healthy.id, 99.9)
    await purgeAfter(0)
    expect(await countsOf(before)).toMatchObject({ events: 0, deliveries: 0, attempts: 0 })
    expect(await countsOf(ofHealthy)).toMatchObject({ events: 0, deliveries: 0, attempts: 0 })
    expect(await countsOf(within)).toMatchObject({ events: 1, deliveries: 1, attempts: 2 })
    await knex()('webhooks').where({ id: webhook.id }).update({ first_failure_at: null })
    await purgeAfter(0)
    expect(await countsOf(within)).toMatchObject({ events: 0, deliveries: 0, attempts: 0 })
  })

  test('does not hold up what lies behind its rows, however many they are', async () => {
    const failing = await world.webhook({ endpoint: `${receiver.url}/hooks` })
    const healthy = await world.webhook({ endpoint: `${receiver.url}/hooks` })
    const firstFailureAt = new Date(world.clock.nowMs() - 200 * DAY_MS)
    await knex()('webhooks').where({ id: failing.id }).update({ first_failure_at: firstFailureAt, failed_attempts: 2 })
    for (let n = 0; n < 120; n++) await ended(failing.id, 190 - n / 1000)
    const behind = await ended(healthy.id, 95)
    await purgeAfter(0)
    expect(await countsOf(behind)).toMatchObject({ events: 0, deliveries: 0 })
    expect(await knex()('deliveries').where({ webhook_id: failing.id })).toHaveLength(120)
  })
})

test('the log of every webhook loses what is too old, however many there are and however much each has', async () => {
  const at = (daysAgo: number) => new Date(world.clock.nowMs() - daysAgo * DAY_MS)
  const row = (webhookId: string, daysAgo: number) => ({ webhook_id: webhookId, event_id: newId(at(daysAgo).getTime()), status: 'delivered', attempts: 1, ended_at: at(daysAgo) }) // prettier-ignore
  const many = (count: number, make: (n: number) => ReturnType<typeof row>) =>
    Array.from({ length: count }, (_, n) => make(n))
  const webhookIds = Array.from({ length: 60 }, (_, n) => newId(n + 1))
  const young = webhookIds.flatMap((id) => many(3, (n) => row(id, 89 - n)))
  // The first and the last, every third of those in between; one with more than goes in one batch, and late ends of old events.
  const old = webhookIds
    .filter((_, n) => n % 3 === 0 || n === 59)
    .flatMap((id, n) => many(n === 5 ? 250 : 2, () => row(id, 91)))
  const late = webhookIds.slice(0, 2).map((id) => ({ ...row(id, 95), ended_at: at(80) }))
  for (const rows of [young, old, late]) await knex()('deliveries').insert(rows)
  await purgeAfter(0)
  const left = await knex()('deliveries').select('event_id')
  expect(left.map((row) => row.event_id).sort()).toEqual([...young, ...late].map((row) => row.event_id).sort())
})

test('a deleted webhook stays while the log or a mail names it, and then goes with its secrets', async () => {
  const webhook = await world.webhook({ endpoint: `${receiver.url}/hooks` })
  const active = await world.webhook({ endpoint: `${receiver.url}/hooks` })
  const daemon = await world.daemon(tls.caFile)
  const { id } = await world.event()
  await expect.poll(() => countsOf(id)).toMatchObject({ deliveries: 2 })
  await daemon.stop()
  await world.deleteWebhook(webhook.id)
  const ids = async () => (await knex()('webhooks').orderBy('id').select('id')).map((row) => row.id)
  await purgeAfter(89.9)
  expect(await ids()).toEqual([webhook.id, active.id].sort())
  await knex()('deliveries').update({ ended_at: new Date(world.clock.nowMs() + 5 * DAY_MS) })
  await purgeAfter(90.1)
  expect(await ids()).toEqual([webhook.id, active.id].sort())
  await purgeAfter(95.1)
  expect(await ids()).toEqual([active.id])
  for (const table of ['webhook_events', 'webhook_secrets', 'lanes']) {
    expect(await knex()(table).where({ webhook_id: webhook.id }), table).toEqual([])
    expect(await knex()(table).where({ webhook_id: active.id }), table).toHaveLength(1)
  }
})

describe('of several daemons', () => {
  test('one purges, and for the next hour none', async () => {
    const { id } = await world.event()
    await knex()('unrouted_events').delete()
    const clock = daysLater(31)
    await Promise.all(Array.from({ length: 8 }, () => purgeWith(clock)))
    expect(await countsOf(id)).toMatchObject({ bodies: 0 })
    const [row] = await knex()('purge_runs')
    expect(row.due_at.getTime()).toBe(clock.nowMs() + HOUR_MS)
    await knex()('event_bodies').insert({ event_id: id, body: 'x' })
    clock.advance(HOUR_MS - 1)
    await purgeWith(clock)
    expect(await countsOf(id)).toMatchObject({ bodies: 1 })
    clock.advance(1)
    await purgeWith(clock)
    expect(await countsOf(id)).toMatchObject({ bodies: 0 })
  })

  test('the next goes on where one stopped, at once; where one died, after its lease', async () => {
    const { id } = await world.event()
    await knex()('unrouted_events').delete()
    const clock = daysLater(31)
    let asked = 0
    await purgeWith(clock, () => asked++ > 0)
    expect(await countsOf(id)).toMatchObject({ bodies: 1 })
    await purgeWith(clock)
    expect(await countsOf(id)).toMatchObject({ bodies: 0 })
    await knex()('event_bodies').insert({ event_id: id, body: 'x' })
    await knex()('purge_runs').update({ due_at: new Date(clock.nowMs() + 5 * 60_000) })
    await purgeWith(clock)
    expect(await countsOf(id)).toMatchObject({ bodies: 1 })
    clock.advance(5 * 60_000)
    await purgeWith(clock)
    expect(await countsOf(id)).toMatchObject({ bodies: 0 })
  })

  test('none waits for a time that a clock which was set back has left behind', async () => {
    const { id } = await world.event()
    await knex()('unrouted_events').delete()
    const clock = daysLater(31)
    await knex()('purge_runs').insert({ name: 'expired', due_at: new Date(clock.nowMs() + 365 * DAY_MS) })
    await purgeWith(clock)
    expect(await countsOf(id)).toMatchObject({ bodies: 0 })
  })
})

test('rows that somebody has locked are left to the next purge', async () => {
  const { id } = await world.event()
  await knex()('unrouted_events').delete()
  const trx = await knex().transaction()
  await trx('event_bodies').where({ event_id: id }).forUpdate().first()
  await purgeAfter(31)
  await trx.rollback()
  expect(await countsOf(id)).toMatchObject({ bodies: 1 })
  await purgeAfter(31)
  expect(await countsOf(id)).toMatchObject({ bodies: 0 })
})
