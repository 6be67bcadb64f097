/** What the transaction that records an attempt does to the life cycle, with the attempt at hand. */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { recordAttempts } from '../../src/deliveries/attempts-repository.ts'
import type { AttemptResult } from '../../src/deliveries/recording-rules.ts'
import {
  countMissedEvents,
  findMissedEvent,
  listMissedEvents,
} from '../../src/deliveries/delivery-log-missed-repository.ts'
import { AFTER_ALL_IDS } from '../../src/deliveries/delivery-log-rules.ts'
import { routeEvents } from '../../src/events/event-routing.ts'
import { firstIdOf, newId } from '../../src/ids.ts'
import { holdMail } from '../../src/mails/mails-repository.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { takeLane } from '../support/take-lane.ts'

const DAY_MS = 86_400_000
const TABLES =
  'delivery_queue unrouted_events deliveries earlier_attempts lanes webhooks webhook_events daemons mails'.split(' ')

let db: TestDatabase
let world: DeliveryWorld
let token: string
let webhookId: string

beforeAll(async () => {
  db = await openTestDatabase()
})
afterAll(() => db.close())
beforeEach(async () => {
  world = await new DeliveryWorld(db.database).open()
  token = newId(world.clock.nowMs())
  webhookId = (await world.webhook({ endpoint: 'https://a.example.com/hooks' })).id
  await takeLane(db.database, webhookId, token)
  // Failing for a day, so that one more failed attempt is the last.
  await knex()('webhooks')
    .where({ id: webhookId })
    .update({
      first_failure_at: new Date(world.clock.nowMs() - DAY_MS),
      failed_attempts: 6,
      last_error: 'HTTP status 502',
    })
})
afterEach(async () => {
  await world.close()
  for (const table of TABLES) await knex()(table).delete()
})

const knex = () => db.database.knex
const row = () => knex()('webhooks').where({ id: webhookId }).first()
const kindsOfMails = async () => (await knex()('mails').orderBy('id')).map(({ kind }) => kind)

/** An attempt of an event that waits, made under the webhook's present epoch. */
async function attemptOf(status: number): Promise<AttemptResult> {
  const { id: eventId } = await world.event()
  await routeEvents(db.database.batch, world.clock.now(), 100)
  const { epoch, due_at: dueAt } = await knex()('delivery_queue').where({ event_id: eventId }).first()
  const ok = status < 300
  return {
    ...{ token, webhookId, eventId, dueAt, place: 1, n: 1, earlyAttempts: 0, epoch, isTest: false, isMessage: false },
    ...{ startedAt: world.clock.now(), durationMs: 5, ok, class: ok ? 'ok' : 'status', status },
    ...{ error: ok ? null : `HTTP status ${status}`, answer: null, retryAfterMs: undefined },
  }
}

function record(...results: AttemptResult[]) {
  return recordAttempts(db.database.batch, token, results, world.clock.now(), { ...world.config(), random: () => 0 })
}

test('attempt, state and mails are there together or not at all', async () => {
  const failed = await attemptOf(500)
  await knex().raw('RENAME TABLE mails TO mails_elsewhere')
  try {
    await expect(record(failed)).rejects.toThrow('mails')
  } finally {
    await knex().raw('RENAME TABLE mails_elsewhere TO mails')
  }
  expect(await row()).toMatchObject({ state: 'active', failed_attempts: 6, epoch: 1 })
  expect(await knex()('attempts')).toEqual([])
  await record(failed)
  expect(await row()).toMatchObject({ state: 'auto_deleted', failed_attempts: 7, epoch: 2 })
  expect(await kindsOfMails()).toEqual(['warning', 'deletion'])
  expect(await knex()('attempts')).toHaveLength(1)
})

test('an attempt of before an auto-deletion is logged after the reactivation and judges nothing', async () => {
  const [last, lateFailure, lateSuccess] = [await attemptOf(500), await attemptOf(503), await attemptOf(204)]
  await record(last)
  expect(await row()).toMatchObject({ state: 'auto_deleted' })
  await world.reactivateWebhook(webhookId)
  const clean = { state: 'active', first_failure_at: null, failed_attempts: 0, last_error: null, warned_at: null }
  await record(lateFailure)
  expect(await row()).toMatchObject(clean)
  const failing = await attemptOf(500)
  await record(failing)
  const { first_failure_at: firstFailureAt } = await row()
  await record(lateSuccess)
  expect(await row()).toMatchObject({ state: 'active', first_failure_at: firstFailureAt, failed_attempts: 1 })
  const statusOf = async ({ eventId }: AttemptResult) =>
    (await knex()('deliveries').where({ event_id: eventId }).first())?.status
  expect(await statusOf(lateFailure)).toBe('discarded')
  expect(await statusOf(lateSuccess)).toBe('delivered')
  expect(await knex()('attempts')).toHaveLength(4)
})

test('one batch that brings the last failure and a success after it ends deleted; the other way round it does not', async () => {
  const [success, failure] = [await attemptOf(204), await attemptOf(500)]
  await record(success, failure)
  expect(await row()).toMatchObject({ state: 'active', failed_attempts: 1 })
  expect(await kindsOfMails()).toEqual([])
  await knex()('webhooks')
    .where({ id: webhookId })
    .update({ first_failure_at: new Date(world.clock.nowMs() - DAY_MS) })
  const [lastFailure, tooLate] = [await attemptOf(500), await attemptOf(204)]
  await record(lastFailure, tooLate)
  expect(await row()).toMatchObject({ state: 'auto_deleted', failed_attempts: 2 })
  expect(await kindsOfMails()).toEqual(['warning', 'deletion'])
})

test('a warning goes to nobody after a 2xx, also where a failure followed in the same batch; that of the new period stays', async () => {
  const waiting = () => knex()('mails').whereNotNull('due_at').pluck('kind')
  const [warns, success, failure] = [await attemptOf(500), await attemptOf(204), await attemptOf(503)]
  await knex()('webhooks')
    .where({ id: webhookId })
    .update({ first_failure_at: new Date(world.clock.nowMs() - DAY_MS / 2 - 1000) })
  await record(warns, success, failure)
  expect(await row()).toMatchObject({ state: 'active', failed_attempts: 1, warned_at: null })
  expect(await kindsOfMails()).toEqual(['warning'])
  expect(await waiting()).toEqual([])
  const old = new Date(world.clock.nowMs() - DAY_MS / 2)
  const [first, second, third] = [await attemptOf(204), await attemptOf(500), await attemptOf(500)]
  await record(first, { ...second, startedAt: old }, third)
  expect(await row()).toMatchObject({ state: 'active', failed_attempts: 2, warned_at: expect.any(Date) })
  expect(await waiting()).toEqual(['warning'])
})

test('a warning that was not sent by the time of a 2xx goes to nobody; one of another webhook, and a deletion, wait on', async () => {
  const other = (await world.webhook({ endpoint: 'https://b.example.com/hooks' })).id
  const mail = (webhook: string, kind: string) => ({
    ...{
      id: newId(world.clock.nowMs()),
      kind,
      account_id: world.accountId,
      webhook_id: webhook,
      recipient: 'a@lab.example',
    },
    ...{
      lab_name: 'Lab',
      endpoint: 'https://a.example.com/hooks',
      events: 'lead.created',
      failing_since: world.clock.now(),
    },
    ...{ failed_attempts: 6, last_error: 'HTTP status 502', webhooks_on_url: 1 },
    ...{ created_at: world.clock.now(), due_at: world.clock.now() },
  })
  const mails = [mail(webhookId, 'warning'), mail(webhookId, 'deletion'), mail(other, 'warning')]
  await knex()('mails').insert(mails)
  await record(await attemptOf(204))
  const waiting = await knex()('mails').whereNotNull('due_at').orderBy('id').pluck('id')
  expect(waiting).toEqual(
    mails
      .slice(1)
      .map(({ id }) => id)
      .sort(),
  )
  const tried = { ...mails[0]!, dueAt: mails[0]!.due_at, tries: -1 }
  await holdMail(knex(), tried as never, world.clock.now())
  expect(await knex()('mails').where({ id: tried.id }).first()).toMatchObject({ due_at: null, sent_at: null })
})

test('by a clock that is behind what was noted for the lab, what it got before its auto-deletion is not missed, what comes then is', async () => {
  const { id: other } = await world.webhook({ endpoint: 'https://b.example.com/hooks' })
  await knex()('webhooks')
    .where({ id: other })
    .update({ active_from: knex().raw('UTC_TIMESTAMP(6) + INTERVAL 2 HOUR') })
  const last = await attemptOf(500)
  const waiting = await world.event()
  await record(last)
  expect(await row()).toMatchObject({ state: 'auto_deleted' })
  const meanwhile = await world.event()
  await routeEvents(db.database.batch, world.clock.now(), 100)
  const copies = () => knex()('delivery_queue').where({ webhook_id: webhookId }).select('event_id', 'epoch')
  // To be discarded.
  expect(await copies()).toEqual([{ event_id: waiting.id, epoch: 1 }])
  const missed = async () => {
    const webhook = { id: webhookId, labId: world.labId }
    const page = { fromId: firstIdOf(0), beforeId: AFTER_ALL_IDS, limit: 10, type: undefined }
    const { events } = await listMissedEvents(knex(), webhook, page)
    const ofEach = [last.eventId, waiting.id, meanwhile.id].map((id) => findMissedEvent(knex(), webhook, id))
    const counted = await countMissedEvents(knex(), webhook, { after: firstIdOf(0), untilId: AFTER_ALL_IDS })
    return { listed: events.map(({ eventId }) => eventId), found: await Promise.all(ofEach), counted: counted.missed }
  }
  const onlyThat = {
    listed: [meanwhile.id],
    found: [undefined, undefined, { eventId: meanwhile.id, type: expect.any(String) }],
    counted: 1,
  }
  expect(await missed()).toEqual(onlyThat)
  await world.reactivateWebhook(webhookId)
  expect(await missed()).toEqual(onlyThat)
})
