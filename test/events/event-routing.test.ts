import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { routeEvents } from '../../src/events/event-routing.ts'
import type { EventType } from '../../src/events/event-types.ts'
import { newId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld, type MessageWish } from '../support/delivery-world.ts'

let db: TestDatabase
let world: DeliveryWorld

beforeAll(async () => {
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
})
afterAll(async () => {
  await world.close()
  await db.close()
})

const endpoint = 'https://partner.example.com/'
const corporateId = newId(11)
const doctorId = newId(12)
const hospitalId = newId(13)

async function idsFor(eventId: string): Promise<string[]> {
  return (await world.copiesOf(eventId)).map((row) => row.webhook_id)
}

test('every active webhook of the lab that includes the event gets its own copy', async () => {
  const labId = newId(100)
  const first = await world.webhook({ endpoint, labId })
  const second = await world.webhook({ endpoint, labId, events: ['lead.created', 'booking.created'] })
  await world.webhook({ endpoint, labId, events: ['booking.created'] })
  await world.webhook({ endpoint, labId: newId(101) })
  const event = await world.event({ labId })
  await world.route()
  expect(await idsFor(event.id)).toEqual([first.id, second.id].sort())
})

test('a webhook of a party gets the events whose record has that party, and no others', async () => {
  const labId = newId(110)
  const ofCorporate = await world.webhook({ endpoint, labId, corporateId })
  const ofDoctor = await world.webhook({ endpoint, labId, organizationId: doctorId })
  const ofHospital = await world.webhook({ endpoint, labId, organizationId: hospitalId })
  const withCorporate = await world.event({ labId, corporateId })
  const withDoctor = await world.event({ labId, doctorId })
  const withHospital = await world.event({ labId, hospitalId })
  const withNobody = await world.event({ labId })
  const withAll = await world.event({ labId, corporateId, doctorId, hospitalId })
  await world.route()
  expect(await idsFor(withCorporate.id)).toEqual([ofCorporate.id])
  expect(await idsFor(withDoctor.id)).toEqual([ofDoctor.id])
  expect(await idsFor(withHospital.id)).toEqual([ofHospital.id])
  expect(await idsFor(withNobody.id)).toEqual([])
  expect(await idsFor(withAll.id)).toEqual([ofCorporate.id, ofDoctor.id, ofHospital.id].sort())
})

test('a webhook gets no event that was recorded before it became active', async () => {
  const labId = newId(120)
  const event = await world.event({ labId })
  await world.webhook({ endpoint, labId })
  await world.route()
  expect(await idsFor(event.id)).toEqual([])
})

test('a webhook gets no event that was recorded after its deletion', async () => {
  const webhook = await world.webhook({ endpoint, events: ['bill.deleted'] })
  await world.deleteWebhook(webhook.id)
  const event = await world.event({ type: 'bill.deleted' })
  await world.route()
  expect(await idsFor(event.id)).toEqual([])
})

test('a copy of a webhook that was deleted before the fan-out is routed under an older epoch', async () => {
  const webhook = await world.webhook({ endpoint, events: ['bill.created'] })
  const event = await world.event({ type: 'bill.created' })
  await world.deleteWebhook(webhook.id)
  await world.route()
  const { epoch } = await db.database.knex('webhooks').where({ id: webhook.id }).first('epoch')
  expect(await world.copiesOf(event.id)).toEqual([{ webhook_id: webhook.id, epoch: epoch - 1 }])
})

test('a copy of a webhook that was auto-deleted and reactivated before the fan-out is routed under an older epoch', async () => {
  const webhook = await world.webhook({ endpoint, events: ['booking.cancelled'] })
  const before = await world.event({ type: 'booking.cancelled' })
  await world.autoDeleteWebhook(webhook.id)
  const meanwhile = await world.event({ type: 'booking.cancelled' })
  await world.reactivateWebhook(webhook.id)
  const between = await world.event({ type: 'booking.cancelled' })
  await world.autoDeleteWebhook(webhook.id)
  await world.reactivateWebhook(webhook.id)
  const after = await world.event({ type: 'booking.cancelled' })
  await world.route()
  const { epoch } = await db.database.knex('webhooks').where({ id: webhook.id }).first('epoch')
  for (const event of [before, between]) {
    expect(await world.copiesOf(event.id)).toEqual([{ webhook_id: webhook.id, epoch: epoch - 1 }])
  }
  expect(await world.copiesOf(meanwhile.id)).toEqual([])
  expect(await world.copiesOf(after.id)).toEqual([{ webhook_id: webhook.id, epoch }])
})

test('a webhook gets the events of the hours by which the database’s clock was set back, due at once', async () => {
  const { knex } = db.database
  const labId = newId(125)
  const webhook = await world.webhook({ endpoint, labId })
  const later = knex.raw('UTC_TIMESTAMP(6) + INTERVAL 3 HOUR')
  await knex('webhooks').where({ id: webhook.id }).update({ active_from: later })
  const event = await world.event({ labId })
  // A daemon that has not seen it yet routes by the old time.
  await routeEvents(db.database.batch, new Date(world.clock.nowMs() + 3 * 3_600_000), 1000)
  const { epoch } = await knex('webhooks').where({ id: webhook.id }).first('epoch')
  expect(await world.copiesOf(event.id)).toEqual([{ webhook_id: webhook.id, epoch }])
  for (const table of ['delivery_queue', 'lanes']) {
    const { due_at: dueAt } = await knex(table).where({ webhook_id: webhook.id }).first('due_at')
    expect(dueAt.getTime()).toBeLessThan(world.clock.nowMs() + 60_000)
  }
})

test('the fan-out makes the lanes due and leaves no event unrouted', async () => {
  const webhook = await world.webhook({ endpoint, events: ['report.completed'] })
  await world.event({ type: 'report.completed' })
  const { webhookIds } = await world.route()
  expect(webhookIds).toContain(webhook.id)
  expect(await db.database.knex('unrouted_events').first()).toBeUndefined()
  const lane = await db.database.knex('lanes').where({ webhook_id: webhook.id }).first()
  expect(lane.due_at.getTime()).toBeLessThanOrEqual(world.clock.nowMs())
})

test('no lane is due after what waits in it, also where the daemon’s clock is ahead of the server’s', async () => {
  const { knex } = db.database
  for (let round = 0; round < 20; round++) {
    const webhook = await world.webhook({ endpoint })
    await world.event()
    await routeEvents(db.database.batch, new Date(world.clock.nowMs() + 3_600_000), 100)
    const { due_at: queued } = await knex('delivery_queue').where({ webhook_id: webhook.id }).first('due_at')
    const { due_at: ofLane } = await knex('lanes').where({ webhook_id: webhook.id }).first('due_at')
    expect(ofLane.getTime()).toBeLessThanOrEqual(queued.getTime())
  }
})

test('the fan-out never raises the due time of a lane', async () => {
  const webhook = await world.webhook({ endpoint, events: ['bill.completed'] })
  const earlier = new Date(world.clock.nowMs() - 60_000)
  await db.database.knex('lanes').where({ webhook_id: webhook.id }).update({ due_at: earlier })
  await world.event({ type: 'bill.completed' })
  await world.route()
  expect((await db.database.knex('lanes').where({ webhook_id: webhook.id }).first()).due_at).toEqual(earlier)
})

describe('a message', () => {
  const message = (wish: MessageWish) => world.message({ type: 'bill.send', ...wish })
  const events: EventType[] = ['bill.send']

  test('goes to every webhook without a party, and then to no other', async () => {
    const labId = newId(140)
    const catchAll = [
      await world.webhook({ endpoint, labId, events }),
      await world.webhook({ endpoint, labId, events }),
    ]
    await world.webhook({ endpoint, labId, events, corporateId })
    await world.webhook({ endpoint, labId })
    const event = await message({ labId, corporateId })
    expect((await world.route()).normalMessages).toBe(0)
    expect(await idsFor(event.id)).toEqual(catchAll.map(({ id }) => id).sort())
  })

  test('goes to the webhook of each of its parties where there is none without a party', async () => {
    const labId = newId(150)
    const ofCorporate = await world.webhook({ endpoint, labId, events, corporateId })
    const ofDoctor = await world.webhook({ endpoint, labId, events, organizationId: doctorId })
    await world.webhook({ endpoint, labId, events, organizationId: hospitalId })
    const withBoth = await message({ labId, corporateId, doctorId })
    const withOther = await message({ labId, doctorId: newId(151) })
    expect((await world.route()).normalMessages).toBe(1)
    expect(await idsFor(withBoth.id)).toEqual([ofCorporate.id, ofDoctor.id].sort())
    expect(await idsFor(withOther.id)).toEqual([])
  })

  test('of which the webhook without a party went before the fan-out goes to no party instead', async () => {
    const labId = newId(160)
    const catchAll = await world.webhook({ endpoint, labId, events })
    await world.webhook({ endpoint, labId, events, corporateId })
    const event = await message({ labId, corporateId })
    await world.deleteWebhook(catchAll.id, labId)
    await world.route()
    const { epoch } = await db.database.knex('webhooks').where({ id: catchAll.id }).first('epoch')
    expect(await world.copiesOf(event.id)).toEqual([{ webhook_id: catchAll.id, epoch: epoch - 1 }])
  })

  test('of which the webhook without a party was auto-deleted and reactivated before the fan-out goes to no party either', async () => {
    const catchAll = await world.webhook({ endpoint, events: ['quotation.send'] })
    await world.webhook({ endpoint, events: ['quotation.send'], corporateId })
    const event = await message({ type: 'quotation.send', corporateId })
    await world.autoDeleteWebhook(catchAll.id)
    await world.reactivateWebhook(catchAll.id)
    await world.route()
    const { epoch } = await db.database.knex('webhooks').where({ id: catchAll.id }).first('epoch')
    expect(await world.copiesOf(event.id)).toEqual([{ webhook_id: catchAll.id, epoch: epoch - 1 }])
  })

  test('that was recorded after the webhook without a party went goes to its party', async () => {
    const labId = newId(170)
    const catchAll = await world.webhook({ endpoint, labId, events })
    const ofCorporate = await world.webhook({ endpoint, labId, events, corporateId })
    await world.deleteWebhook(catchAll.id, labId)
    const event = await message({ labId, corporateId })
    await world.route()
    expect(await idsFor(event.id)).toEqual([ofCorporate.id])
  })
})

test('eight fan-outs at once give each event exactly one copy for each webhook', async () => {
  const labId = newId(130)
  const webhooks = [await world.webhook({ endpoint, labId }), await world.webhook({ endpoint, labId })]
  const events = await Promise.all(Array.from({ length: 60 }, () => world.event({ labId })))
  let routed = 0
  while (routed < events.length) {
    const results = await Promise.allSettled(Array.from({ length: 8 }, () => world.route(7)))
    for (const result of results) if (result.status === 'fulfilled') routed += result.value.events
  }
  expect(routed).toBe(events.length)
  const rows = await db.database.knex('delivery_queue').whereIn(
    'event_id',
    events.map((event) => event.id),
  )
  expect(rows).toHaveLength(events.length * webhooks.length)
})
