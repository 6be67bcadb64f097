/**
 * The doctor on a database that a real API and real daemons have used, and with a fault of each kind planted in it.
 */
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import type { Knex } from 'knex'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { examine } from '../../scripts/doctor/examination.ts'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { newId } from '../../src/ids.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { buildAccount, buildLab, buildParty, leadBody, newContact, subscribeBody } from '../support/builders.ts'
import { DeliveryWorld, type TestWebhook } from '../support/delivery-world.ts'
import { createTestTls } from '../support/tls.ts'

const HOUR_MS = 3_600_000

let app: TestApp
let world: DeliveryWorld
let tls: Awaited<ReturnType<typeof createTestTls>>
let receiver: HttpsReceiver
let healthy: TestWebhook
let failing: TestWebhook
let returned: TestWebhook
let partyWebhook: string
let delivered: string
let waiting: string
let message: string
let entry: string

beforeAll(async () => {
  tls = await createTestTls()
  receiver = await startHttpsReceiver(tls, ({ path }) => ({ status: path.startsWith('/down') ? 503 : 204 }))
  app = await startTestApp()
  app.clock.set(new Date(await app.database.readTimeMs()).toISOString())
  world = await new DeliveryWorld(app.database).open()
  await useTheApi()
  await useTheDaemon()
}, 60_000)
afterAll(async () => {
  await world.close()
  await receiver.close()
  await app.close()
  tls.remove()
})

async function useTheApi(): Promise<void> {
  const account = await buildAccount(app, { mode: 'party_scoped' })
  const lab = await buildLab(app, account)
  const party = await buildParty(app, account, 'corporate')
  const call = async (path: string, body: object) => {
    const answer = await app.call('POST', path, { token: account.token, body })
    expect([path, answer.status]).toEqual([path, 200])
    return answer.body
  }
  const subscription = subscribeBody(lab, { corporateUser: party.id, events: ['bill.created', 'bill.deleted'] })
  partyWebhook = (await call('/client/events/subscribe', subscription)).data._id
  const fields = { corporateUser: party.id, contact: newContact(), email: 'Asha@Example.in' }
  entry = (await call('/client/crm/lead/create', leadBody(lab, fields))).leadId
}

async function useTheDaemon(): Promise<void> {
  const events = ['lead.created', 'report.send'] as const
  healthy = await world.webhook({ endpoint: receiver.url, events: [...events] })
  failing = await world.webhook({ endpoint: new URL('/down', receiver.url).href })
  returned = await world.webhook({ endpoint: new URL('/down/too', receiver.url).href })
  await knex()('webhooks')
    .where({ id: returned.id })
    .update({
      first_failure_at: new Date(world.clock.nowMs() - 25 * HOUR_MS),
      failed_attempts: 8,
      last_error: 'HTTP status 503',
      warned_at: new Date(world.clock.nowMs() - 12 * HOUR_MS),
    })
  await world.daemon(tls.caFile, { RETRY_SCHEDULE: '0.1,3600' })
  delivered = (await world.event()).id
  message = (await world.message({ type: 'report.send' })).id
  waiting = (await world.event()).id
  await world.sendTestEvent(failing.id)
  await until(async () => (await webhookRow(returned.id)).state === 'auto_deleted')
  await world.event()
  await world.settled()
  await world.reactivateWebhook(returned.id)
  await world.event()
  await until(async () => (await webhookRow(returned.id)).failed_attempts >= 2)
  await until(async () => (await webhookRow(failing.id)).failed_attempts >= 8)
  await world.settled()
  // Nobody owns a lane any more: what is due stands in the rows alone.
  await world.close()
}

const knex = () => app.database.knex
const webhookRow = (id: string) => knex()('webhooks').where({ id }).first()
const until = (condition: () => Promise<boolean>) =>
  vi.waitFor(async () => expect(await condition()).toBe(true), { timeout: 20_000, interval: 20 })

const LIMITS = {
  warnAfterSeconds: 43_200,
  warnByClockSeconds: 82_800,
  deleteAfterSeconds: 86_400,
  minWarningLeadSeconds: 0,
}

async function look(
  of: Knex,
  limits = LIMITS,
  registrationSeconds = 0,
): Promise<{ check: string; sentence: string }[]> {
  const now = new Date(await app.database.readTimeMs())
  const examined = { knex: of, now, limits, payloadRetentionDays: 30, logRetentionDays: 90, registrationSeconds }
  return (await examine(examined, 0)).findings
}

const healthFindings = (found: { check: string; sentence: string }[], webhookId = '') =>
  found.filter(({ check, sentence }) => check === 'health_differs' && sentence.includes(webhookId))

/** One more, recorded behind all others of the webhook. */
async function addAttempt(trx: Knex.Transaction, webhookId: string, fields: object): Promise<void> {
  const { last_seq: lastSeq } = await trx('lanes').where({ webhook_id: webhookId }).first('last_seq')
  const like = await trx('deliveries').where({ webhook_id: healthy.id, event_id: delivered }).first()
  const failure = { class: 'timeout', error: 'no answer within 10 s', status: 'discarded' }
  const ids = { webhook_id: webhookId, event_id: newId(2), seq: Number(lastSeq) + 1 }
  await trx('deliveries').insert({ ...like, ...failure, ...ids, ...fields })
  await trx('lanes').where({ webhook_id: webhookId }).update({ last_seq: ids.seq })
}

type Plant = [check: string, plant: (trx: Knex.Transaction) => Promise<unknown>]

const delivery = () => ({ webhook_id: healthy.id, event_id: delivered })
const nobody = newId(1)
const ended = { status: 'discarded', attempts: 0, ended_at: new Date() }
const queued = () => ({ due_at: new Date(), epoch: 1 })

/** A fault of each kind, as a lost write or a hand in the database would leave it. */
const PLANTS: Plant[] = [
  ['webhook_state_incoherent', (trx) => trx('webhooks').where({ id: healthy.id }).update({ failed_attempts: 1 })],
  ['webhook_without_secret', (trx) => trx('webhook_secrets').where({ webhook_id: healthy.id }).delete()],
  ['webhook_without_events', (trx) => trx('webhook_events').where({ webhook_id: healthy.id }).delete()],
  ['party_guard_missing', (trx) => trx('webhook_party_guards').where({ event_type: 'bill.created' }).delete()],
  ['party_guard_left_over', (trx) => trx('webhooks').where({ id: partyWebhook }).update({ state: 'deleted' })],
  [
    'inactivity_out_of_order',
    (trx) => trx('webhook_inactivity').update({ inactive_from: new Date(Date.now() + 24 * HOUR_MS) }),
  ],
  ['lane_missing', (trx) => trx('lanes').where({ webhook_id: healthy.id }).delete()],
  ['lane_without_webhook', (trx) => trx('lanes').insert({ webhook_id: nobody })],
  ['lane_owned_by_nobody', (trx) => trx('lanes').where({ webhook_id: healthy.id }).update({ owner: nobody })],
  ['lane_not_due', (trx) => trx('lanes').where({ webhook_id: failing.id }).update({ due_at: null })],
  ['lane_behind_its_attempts', (trx) => trx('lanes').where({ webhook_id: healthy.id }).update({ last_seq: 0 })],
  ['lane_epoch_ahead', (trx) => trx('lanes').where({ webhook_id: healthy.id }).update({ clean_epoch: 9 })],
  [
    'queued_without_webhook',
    (trx) => trx('delivery_queue').insert({ ...queued(), webhook_id: nobody, event_id: delivered }),
  ],
  [
    'queued_without_event',
    (trx) => trx('delivery_queue').insert({ ...queued(), webhook_id: healthy.id, event_id: nobody }),
  ],
  ['queued_without_body', (trx) => trx('event_bodies').where({ event_id: waiting }).delete()],
  ['queued_epoch_ahead', (trx) => trx('delivery_queue').where({ webhook_id: failing.id }).update({ epoch: 7 })],
  ['queued_attempts_differ', (trx) => trx('delivery_queue').where({ webhook_id: failing.id }).update({ attempts: 0 })],
  ['delivery_without_event', (trx) => trx('deliveries').insert({ ...ended, webhook_id: healthy.id, event_id: nobody })],
  [
    'delivery_without_webhook',
    (trx) => trx('deliveries').insert({ ...ended, webhook_id: nobody, event_id: delivered }),
  ],
  ['delivery_contradicts_its_attempts', (trx) => trx('deliveries').where(delivery()).update({ attempts: 4 })],
  [
    'delivery_contradicts_its_attempts',
    (trx) => trx('deliveries').where(delivery()).update({ class: 'timeout', error: 'none' }),
  ],
  ['delivery_contradicts_its_attempts', (trx) => trx('deliveries').where(delivery()).update({ status: 'exhausted' })],
  [
    'delivery_contradicts_its_attempts',
    (trx) => trx('deliveries').where(delivery()).update({ attempts: 0, status: 'discarded' }),
  ],
  [
    'attempt_without_delivery',
    async (trx) => {
      const [attempt] = await trx('attempts').where(delivery())
      await trx('earlier_attempts').insert(attempt)
      await trx('deliveries').where(delivery()).delete()
    },
  ],
  [
    'delivery_contradicts_its_attempts',
    async (trx) => trx('earlier_attempts').insert((await trx('attempts').where(delivery()))[0]),
  ],
  [
    'recoveries_at_once',
    async (trx) => {
      const row = {
        account_id: nobody,
        lab_id: nobody,
        webhook_id: healthy.id,
        state: 'running',
        from_id: '',
        until_id: '',
      }
      const times = { since_at: new Date(), created_at: new Date(), updated_at: new Date() }
      for (const id of [newId(1), newId(2)]) await trx('recoveries').insert({ id, ...row, ...times })
    },
  ],
  ['event_without_body', (trx) => trx('event_bodies').where({ event_id: delivered }).delete()],
  ['body_without_event', (trx) => trx('event_bodies').insert({ event_id: nobody, body: '{}' })],
  ['unrouted_without_event', (trx) => trx('unrouted_events').insert({ event_id: nobody })],
  ['event_not_fanned_out', (trx) => trx('deliveries').where(delivery()).delete()],
  [
    'delivery_to_the_wrong_webhook',
    (trx) => trx('deliveries').insert({ ...ended, webhook_id: partyWebhook, event_id: delivered }),
  ],
  [
    'delivery_of_a_missed_event',
    (trx) => trx('webhook_inactivity').update({ inactive_from: new Date(Date.now() - HOUR_MS) }),
  ],
  ['message_without_row', (trx) => trx('messages').where({ event_id: message }).delete()],
  ['message_without_event', (trx) => trx('events').where({ id: message }).delete()],
  ['message_offered_to_nobody', (trx) => trx('messages').where({ event_id: message }).update({ state: 'offered' })],
  ['message_waits_for_nothing', (trx) => trx('messages').where({ event_id: message }).update({ state: 'normal' })],
  ['health_differs', (trx) => trx('webhooks').where({ id: failing.id }).increment('failed_attempts', 1)],
  [
    'health_differs',
    (trx) =>
      trx('webhooks')
        .where({ id: healthy.id })
        .update({ first_failure_at: new Date(), failed_attempts: 1, last_error: 'HTTP status 500' }),
  ],
  [
    'health_differs',
    (trx) =>
      trx('webhooks')
        .where({ id: failing.id })
        .update({ warned_at: new Date(Date.now() + HOUR_MS) }),
  ],
  ['day_guard_missing', (trx) => trx('entry_day_guards').where({ entry_id: entry, kind: 'email' }).delete()],
  ['day_guard_left_over', (trx) => trx('entries').where({ id: entry }).delete()],
]

describe('the doctor', () => {
  test('finds nothing where nothing is off', async () => {
    expect(await look(knex())).toEqual([])
    const attempts = await knex()('attempts').count({ n: '*' })
    // A database without a past would say nothing about the checks.
    expect(Number(attempts[0]!.n)).toBeGreaterThan(10)
  })

  test.each(PLANTS)('finds %s', async (check, plant) => {
    const trx = await knex().transaction()
    try {
      await plant(trx)
      const found = (await look(trx)).map((finding) => finding.check)
      expect(found).toContain(check)
    } finally {
      await trx.rollback()
    }
  })

  test('does not expect of an event that it was fanned out to a webhook whose registration had not committed yet', async () => {
    const trx = await knex().transaction()
    try {
      const { recorded_at: recordedAt } = await trx('events').where({ id: delivered }).first('recorded_at')
      await trx('deliveries').where(delivery()).delete()
      const activeFrom = (msBefore: number) =>
        trx('webhooks')
          .where({ id: healthy.id })
          .update({ active_from: new Date(recordedAt.getTime() - msBefore) })
      const found = async () => (await look(trx, LIMITS, 5)).map(({ check }) => check)
      await activeFrom(10)
      expect(await found()).not.toContain('event_not_fanned_out')
      await activeFrom(6000)
      expect(await found()).toContain('event_not_fanned_out')
    } finally {
      await trx.rollback()
    }
  })

  test('takes no attempt that had begun before a reactivation for one that judges', async () => {
    const trx = await knex().transaction()
    try {
      const { active_from: activeFrom } = await trx('webhooks').where({ id: returned.id }).first('active_from')
      await addAttempt(trx, returned.id, { started_at: new Date(activeFrom.getTime() - 1000), duration_ms: 5000 })
      expect(healthFindings(await look(trx))).toEqual([])
    } finally {
      await trx.rollback()
    }
  })

  test('takes no success that came after the deletion for one that clears the record', async () => {
    const trx = await knex().transaction()
    try {
      const last = await trx('attempts as a')
        .join('events as e', 'e.id', 'a.event_id')
        .where({ 'a.webhook_id': failing.id })
        .whereNot('e.type', 'webhook.test')
        .orderBy('a.seq', 'desc')
        .first('a.seq', 'a.started_at')
      // It ends after all others.
      const seconds = 60
      const { first_failure_at: since } = await trx('webhooks').where({ id: failing.id }).first('first_failure_at')
      const endedAt = new Date(since.getTime() + seconds * 1000)
      for (const table of ['earlier_attempts', 'deliveries'])
        await trx(table)
          .where({ webhook_id: failing.id, seq: last.seq })
          .update({ duration_ms: endedAt.getTime() - last.started_at.getTime() })
      await trx('webhooks').where({ id: failing.id }).update({ state: 'auto_deleted', warned_at: endedAt })
      await addAttempt(trx, failing.id, { started_at: endedAt, duration_ms: 5000, class: 'ok', error: null })
      // The last failure was the one that brought it.
      const limits = { ...LIMITS, warnAfterSeconds: seconds, deleteAfterSeconds: seconds }
      expect(healthFindings(await look(trx, limits), failing.id)).toEqual([])
      await trx('webhooks').where({ id: failing.id }).increment('failed_attempts', 1)
      expect(healthFindings(await look(trx, limits), failing.id)).toHaveLength(1)
    } finally {
      await trx.rollback()
    }
  })

  test('looks again, and leaves out what was only on its way', async () => {
    const { knex: own } = app.database
    await own('lanes').insert({ webhook_id: nobody })
    const now = new Date(await app.database.readTimeMs())
    const examined = { knex: own, now, limits: LIMITS, payloadRetentionDays: 30, logRetentionDays: 90 }
    const looking = examine(examined, 1000)
    await until(async () =>
      own('lanes')
        .where({ webhook_id: nobody })
        .delete()
        .then((n) => n === 1),
    )
    expect((await looking).findings).toEqual([])
  })

  test('says what it found, and ends with 0, with 1, or with 2 when it could not look', async () => {
    const script = join(import.meta.dirname, '..', '..', 'scripts', 'doctor.ts')
    const run = (env: Record<string, string>) =>
      spawnSync(process.execPath, [script], {
        encoding: 'utf8',
        env: { ...process.env, MYSQL_URL: app.mysqlUrl, NODE_ENV: 'test', DATA_DIR: app.dataDir, ...env },
      })
    const well = run({})
    expect([well.status, well.stdout]).toEqual([0, expect.stringMatching(/^doctor: findings=0 checks=\d+ seconds=/)])
    await knex()('lanes').insert({ webhook_id: nobody })
    const ill = run({})
    await knex()('lanes').where({ webhook_id: nobody }).delete()
    expect(ill.status).toBe(1)
    expect(ill.stdout).toContain(`doctor: lane_without_webhook: the lane of ${nobody} has no webhook\n`)
    const gone = run({ MYSQL_URL: 'mysql://root@127.0.0.1:1/lis' })
    expect([gone.status, gone.stderr]).toEqual([2, expect.stringMatching(/^doctor: the database can't be reached/)])
  }, 60_000)
})
