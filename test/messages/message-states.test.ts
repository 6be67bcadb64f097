import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { sendThrough } from '../../db/batch.ts'
import { settleLanes } from '../../src/deliveries/lanes-repository.ts'
import { recordEvent } from '../../src/events/events-repository.ts'
import { newId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld, type MessageWish, type WebhookWish } from '../support/delivery-world.ts'
import { HandDaemon } from '../support/hand-daemon.ts'

const HOUR_MS = 3_600_000
const endpoint = 'https://partner.example.com/'

let db: TestDatabase
let world: DeliveryWorld
let daemon: HandDaemon

beforeAll(async () => {
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
})
afterAll(async () => {
  await world.close()
  await db.close()
})
beforeEach(async () => {
  daemon = new HandDaemon(world)
  for (const table of ['delivery_queue', 'unrouted_events', 'lanes', 'webhooks', 'webhook_events']) {
    await knex()(table).delete()
  }
})

const knex = () => db.database.knex
const rowOf = (eventId: string) => knex()('messages').where({ event_id: eventId }).first()
const stateOf = async (eventId: string) => (await rowOf(eventId)).state

async function webhook(wish: Partial<WebhookWish> = {}) {
  const { id } = await world.webhook({ endpoint, events: ['booking.send'], ...wish })
  await daemon.take(id)
  return id
}

const message = async (wish: MessageWish = {}) => (await world.message(wish)).id

/** Says that the message and the failing of the webhook began so long ago. */
async function hoursAgo(hours: number, eventId: string, webhookId: string) {
  const then = new Date(world.clock.nowMs() - hours * HOUR_MS)
  await knex()('messages').where({ event_id: eventId }).update({ created_at: then })
  await knex()('webhooks')
    .where({ id: webhookId })
    .update({ first_failure_at: then, failed_attempts: 8, last_error: 'HTTP status 500', warned_at: then })
}

async function answer(webhookId: string, eventId: string, ok: boolean) {
  return daemon.record([{ copy: await daemon.copyOf(webhookId, eventId), ok }])
}

describe('a message', () => {
  test('is a row in the transaction of its event, or neither is there', async () => {
    const eventId = newId(world.clock.nowMs())
    const event = await world.event()
    const undone = db.database.transaction(async (trx) => {
      const row = { event_id: eventId, account_id: world.accountId, lab_id: world.labId, state: 'offered' }
      await trx('messages').insert({ ...row, created_at: world.clock.now() })
      await recordEvent(trx, { ...event, id: eventId, type: 'booking.send' })
    }) // prettier-ignore
    await expect(undone).rejects.toThrow('recordMessage')
    expect(await rowOf(eventId)).toBeUndefined()
    const recorded = await message()
    expect(await rowOf(recorded)).toMatchObject({ state: 'offered', account_id: world.accountId, lab_id: world.labId, due_at: null })
    expect(await knex()('events').where({ id: recorded }).first()).toMatchObject({ type: 'booking.send' })
  }) // prettier-ignore

  test('that no webhook gets goes the normal way in the fan-out', async () => {
    await webhook({ events: ['lead.created', 'bill.send'] })
    const eventId = await message()
    expect(await daemon.route()).toMatchObject({ events: 1, normalMessages: 1, webhookIds: [] })
    const row = await rowOf(eventId)
    expect(row).toMatchObject({ state: 'normal', sent_at: null, tries: 0 })
    expect(row.due_at.getTime()).toBeLessThanOrEqual(world.clock.nowMs())
  })

  test('is taken by the first 2xx, and later failures of other webhooks change nothing', async () => {
    const [first, second] = [await webhook(), await webhook()]
    const eventId = await message()
    expect(await daemon.route()).toMatchObject({ normalMessages: 0 })
    expect(await stateOf(eventId)).toBe('offered')
    await answer(first, eventId, true)
    expect(await rowOf(eventId)).toMatchObject({ state: 'taken', due_at: null })
    await world.deleteWebhook(second)
    expect(await daemon.discard(second)).toEqual({ copies: 1, normalMessages: 0 })
    expect(await stateOf(eventId)).toBe('taken')
  })

  test('that is taken and lost in one batch of results is taken', async () => {
    const [first, second] = [await webhook(), await webhook()]
    const eventId = await message()
    await daemon.route()
    const copies = [await daemon.copyOf(second, eventId), await daemon.copyOf(first, eventId)]
    await world.deleteWebhook(second)
    const recorded = await daemon.record([
      { copy: copies[0]!, ok: false },
      { copy: copies[1]!, ok: true },
    ])
    expect(recorded.normalMessages).toBe(0)
    expect(await stateOf(eventId)).toBe('taken')
  })

  test('stays offered while a copy waits for its next try', async () => {
    const webhookId = await webhook()
    const eventId = await message()
    await daemon.route()
    expect(await answer(webhookId, eventId, false)).toMatchObject({ normalMessages: 0 })
    expect(await stateOf(eventId)).toBe('offered')
    await answer(webhookId, eventId, true)
    expect(await stateOf(eventId)).toBe('taken')
  })

  test('goes the normal way when its last copy is exhausted', async () => {
    daemon = new HandDaemon(world, { RETRY_SCHEDULE: '1' })
    const [first, second] = [await webhook(), await webhook()]
    const eventId = await message()
    await daemon.route()
    await answer(first, eventId, false)
    await answer(first, eventId, false)
    expect(await stateOf(eventId)).toBe('offered')
    await answer(second, eventId, false)
    expect(await answer(second, eventId, false)).toMatchObject({ normalMessages: 1 })
    expect(await stateOf(eventId)).toBe('normal')
  })
})

describe('a deleted webhook', () => {
  test('hands back its waiting messages that no other webhook has, whatever their age', async () => {
    const webhookId = await webhook()
    const events = [await message(), await message(), await message()]
    await daemon.route()
    await hoursAgo(30, events[0]!, webhookId)
    await world.deleteWebhook(webhookId)
    expect(await daemon.discard(webhookId)).toEqual({ copies: 3, normalMessages: 3 })
    for (const eventId of events) expect(await stateOf(eventId)).toBe('normal')
    expect(await daemon.discard(webhookId)).toEqual({ copies: 0, normalMessages: 0 })
  })

  test('hands back the message whose attempt was in flight when that has failed, and not before', async () => {
    const webhookId = await webhook()
    const eventId = await message()
    await daemon.route()
    const inFlight = await daemon.copyOf(webhookId, eventId)
    await world.deleteWebhook(webhookId)
    expect(await stateOf(eventId)).toBe('offered')
    expect(await daemon.record([{ copy: inFlight, ok: false }])).toMatchObject({ normalMessages: 1 })
    expect(await stateOf(eventId)).toBe('normal')
  })

  test('keeps the message whose attempt in flight succeeds', async () => {
    const webhookId = await webhook()
    const eventId = await message()
    await daemon.route()
    const inFlight = await daemon.copyOf(webhookId, eventId)
    await world.deleteWebhook(webhookId)
    expect(await daemon.record([{ copy: inFlight, ok: true }])).toMatchObject({ normalMessages: 0 })
    expect(await stateOf(eventId)).toBe('taken')
  })

  test('that went before the fan-out gets nothing: the message goes the normal way', async () => {
    const webhookId = await webhook()
    const eventId = await message()
    await world.deleteWebhook(webhookId)
    expect(await daemon.route()).toMatchObject({ normalMessages: 0 })
    expect(await daemon.discard(webhookId)).toEqual({ copies: 1, normalMessages: 1 })
    expect(await stateOf(eventId)).toBe('normal')
    expect(await knex()('attempts').where({ event_id: eventId })).toEqual([])
  })

  test('whose lane settles before it has seen the deletion stays due', async () => {
    const webhookId = await webhook()
    const eventId = await message()
    await daemon.route()
    await answer(webhookId, eventId, false)
    const laneRow = () => knex()('lanes').where({ webhook_id: webhookId }).first()
    await db.database.transaction((trx) => settleLanes(sendThrough(trx), [webhookId], daemon.token))
    expect((await laneRow()).due_at.getTime()).toBeGreaterThan(world.clock.nowMs())
    await daemon.take(webhookId)
    await world.deleteWebhook(webhookId)
    await db.database.transaction((trx) => settleLanes(sendThrough(trx), [webhookId], daemon.token))
    expect(await laneRow()).toMatchObject({ owner: null })
    expect((await laneRow()).due_at.getTime()).toBeLessThanOrEqual(world.clock.nowMs())
    await daemon.take(webhookId)
    expect(await daemon.discard(webhookId)).toEqual({ copies: 1, normalMessages: 1 })
    await daemon.discard(webhookId)
    await db.database.transaction((trx) => settleLanes(sendThrough(trx), [webhookId], daemon.token))
    expect(await laneRow()).toMatchObject({ owner: null, due_at: null })
  })

  test('that has nothing waiting when its lane settles is seen by the next owner all the same, who writes it down', async () => {
    const webhookId = await webhook()
    await daemon.route()
    await daemon.take(webhookId)
    await world.deleteWebhook(webhookId)
    const laneRow = () => knex()('lanes').where({ webhook_id: webhookId }).first()
    const settle = () => db.database.transaction((trx) => settleLanes(sendThrough(trx), [webhookId], daemon.token))
    await settle()
    expect((await laneRow()).due_at.getTime()).toBeLessThanOrEqual(world.clock.nowMs())
    await daemon.take(webhookId)
    await daemon.discard(webhookId)
    await settle()
    expect(await laneRow()).toMatchObject({ owner: null, due_at: null, clean_epoch: 2 })
  })

  test('hands nothing back twice when both webhooks of a message go at once', async () => {
    for (let round = 0; round < 60; round++) {
      const ids = [await webhook(), await webhook()]
      const eventId = await message()
      await daemon.route()
      await Promise.all(ids.map((id) => world.deleteWebhook(id)))
      const discarded = await Promise.all(ids.map((id) => daemon.discard(id)))
      expect(discarded.reduce((sum, { normalMessages }) => sum + normalMessages, 0)).toBe(1)
      expect(await stateOf(eventId)).toBe('normal')
    }
  })
})

describe('an auto-deleted webhook', () => {
  test.each([
    [23.9, 'normal'],
    [24.1, 'expired'],
  ])('hands a waiting message of %d hours back as %s', async (hours, state) => {
    const webhookId = await webhook()
    const [last, waiting] = [await message(), await message()]
    await daemon.route()
    await hoursAgo(24, last, webhookId)
    await answer(webhookId, last, false)
    expect(await knex()('webhooks').where({ id: webhookId }).first()).toMatchObject({ state: 'auto_deleted' })
    const then = new Date(world.clock.nowMs() - hours * HOUR_MS)
    await knex()('messages').where({ event_id: waiting }).update({ created_at: then })
    expect(await daemon.discard(webhookId)).toEqual({ copies: 1, normalMessages: state === 'normal' ? 1 : 0 })
    expect(await stateOf(waiting)).toBe(state)
    expect(await rowOf(waiting)).toMatchObject({ sent_at: null })
  })

  test.each([
    [1, 'normal'],
    [24.1, 'expired'],
  ])('by the attempt of a message of %d hours makes that one %s', async (hours, state) => {
    const webhookId = await webhook()
    const eventId = await message()
    await daemon.route()
    await hoursAgo(24.5, eventId, webhookId)
    const then = new Date(world.clock.nowMs() - hours * HOUR_MS)
    await knex()('messages').where({ event_id: eventId }).update({ created_at: then })
    const { healthChanges } = await answer(webhookId, eventId, false)
    expect(healthChanges).toEqual([{ webhookId, to: 'auto_deleted' }])
    expect(await stateOf(eventId)).toBe(state)
  })

  test('that is reactivated gets its old messages never again: they are handed back', async () => {
    const webhookId = await webhook()
    const [last, waiting] = [await message(), await message()]
    await daemon.route()
    await hoursAgo(24, last, webhookId)
    await answer(webhookId, last, false)
    await world.reactivateWebhook(webhookId)
    expect(await daemon.discard(webhookId)).toMatchObject({ copies: 1 })
    expect(await stateOf(waiting)).toBe('normal')
    expect(await daemon.waiting(webhookId)).toEqual([])
    const next = await message()
    await daemon.route()
    expect((await daemon.waiting(webhookId)).map(({ eventId }) => eventId)).toEqual([next])
  })

  test('that is deleted before its copies are discarded hands back no message that is older than 24 hours', async () => {
    const webhookId = await webhook()
    const [last, held, old, young] = [await message(), await message(), await message(), await message()]
    await daemon.route()
    const inFlight = await daemon.copyOf(webhookId, held)
    await hoursAgo(24, last, webhookId)
    await answer(webhookId, last, false)
    const then = new Date(world.clock.nowMs() - 24.1 * HOUR_MS)
    await knex()('messages').whereIn('event_id', [held, old]).update({ created_at: then })
    await world.deleteWebhook(webhookId)
    expect(await daemon.record([{ copy: inFlight, ok: false }])).toMatchObject({ normalMessages: 0 })
    expect(await daemon.discard(webhookId)).toEqual({ copies: 2, normalMessages: 1 })
    expect(await Promise.all([held, old, young].map(stateOf))).toEqual(['expired', 'expired', 'normal'])
  })

  test('leaves a message to the other webhook that still has it', async () => {
    const [first, second] = [await webhook(), await webhook()]
    const eventId = await message()
    await daemon.route()
    await hoursAgo(25, eventId, first)
    await answer(first, eventId, false)
    expect(await stateOf(eventId)).toBe('offered')
    await answer(second, eventId, true)
    expect(await stateOf(eventId)).toBe('taken')
  })
})

test('an expired message that is sent again by hand can be taken, and never goes the normal way', async () => {
  const webhookId = await webhook()
  const eventId = await message()
  await daemon.route()
  await hoursAgo(25, eventId, webhookId)
  await answer(webhookId, eventId, false)
  expect(await stateOf(eventId)).toBe('expired')
  daemon = new HandDaemon(world, { RETRY_SCHEDULE: '1' })
  const other = await webhook()
  const again = { webhook_id: other, due_at: world.clock.now(), event_id: eventId, epoch: 1 }
  await knex()('delivery_queue').insert({ ...again, attempts: 1 })
  expect(await answer(other, eventId, false)).toMatchObject({ normalMessages: 0 })
  expect(await stateOf(eventId)).toBe('expired')
  await knex()('delivery_queue').insert({ ...again, attempts: 2 })
  await answer(other, eventId, true)
  expect(await stateOf(eventId)).toBe('taken')
})

test('a copy sent again by hand changes nothing for a message that went the normal way, whatever its answer', async () => {
  const webhookId = await webhook()
  const eventId = await message()
  await daemon.route()
  const copy = await daemon.copyOf(webhookId, eventId)
  await world.deleteWebhook(webhookId)
  await daemon.discard(webhookId)
  const other = await webhook()
  await knex()('delivery_queue').insert({ webhook_id: other, due_at: world.clock.now(), event_id: eventId, epoch: 1 })
  const before = await rowOf(eventId)
  expect(copy.isMessage).toBe(true)
  await answer(other, eventId, true)
  expect(await rowOf(eventId)).toEqual(before)
})
