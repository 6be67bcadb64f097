import { afterAll, beforeAll, expect, test } from 'vitest'
import { routeEvents } from '../../src/events/event-routing.ts'
import { EVENT_TYPES, type EventType } from '../../src/events/event-types.ts'
import { newId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'

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

async function route(limit = 1000) {
  return routeEvents(db.database.batch, world.clock.now(), limit)
}

async function queuedFor(eventId: string): Promise<{ webhook_id: string; epoch: number }[]> {
  return db.database
    .knex('delivery_queue')
    .where({ event_id: eventId })
    .orderBy('webhook_id')
    .select('webhook_id', 'epoch')
}

async function idsFor(eventId: string): Promise<string[]> {
  return (await queuedFor(eventId)).map((row) => row.webhook_id)
}

test('every active webhook of the lab that includes the event gets its own copy', async () => {
  const labId = newId(100)
  const first = await world.webhook({ endpoint, labId })
  const second = await world.webhook({ endpoint, labId, events: ['lead.created', 'booking.created'] })
  await world.webhook({ endpoint, labId, events: ['booking.created'] })
  await world.webhook({ endpoint, labId: newId(101) })
  const event = await world.event({ labId })
  await route()
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
  await route()
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
  await route()
  expect(await idsFor(event.id)).toEqual([])
})

test('a webhook gets no event that was recorded after its deletion', async () => {
  const webhook = await world.webhook({ endpoint, events: ['bill.deleted'] })
  await world.deleteWebhook(webhook.id)
  const event = await world.event({ type: 'bill.deleted' })
  await route()
  expect(await idsFor(event.id)).toEqual([])
})

test('a copy of a webhook that was deleted before the fan-out is routed under an older epoch', async () => {
  const webhook = await world.webhook({ endpoint, events: ['bill.created'] })
  const event = await world.event({ type: 'bill.created' })
  await world.deleteWebhook(webhook.id)
  await route()
  const { epoch } = await db.database.knex('webhooks').where({ id: webhook.id }).first('epoch')
  expect(await queuedFor(event.id)).toEqual([{ webhook_id: webhook.id, epoch: epoch - 1 }])
})

test('the fan-out makes the lanes due and leaves no event unrouted', async () => {
  const webhook = await world.webhook({ endpoint, events: ['report.completed'] })
  await world.event({ type: 'report.completed' })
  const { webhookIds } = await route()
  expect(webhookIds).toContain(webhook.id)
  expect(await db.database.knex('unrouted_events').first()).toBeUndefined()
  const lane = await db.database.knex('lanes').where({ webhook_id: webhook.id }).first()
  expect(lane.due_at.getTime()).toBeLessThanOrEqual(world.clock.nowMs())
})

test('the fan-out never raises the due time of a lane', async () => {
  const webhook = await world.webhook({ endpoint, events: ['bill.completed'] })
  const earlier = new Date(world.clock.nowMs() - 60_000)
  await db.database.knex('lanes').where({ webhook_id: webhook.id }).update({ due_at: earlier })
  await world.event({ type: 'bill.completed' })
  await route()
  expect((await db.database.knex('lanes').where({ webhook_id: webhook.id }).first()).due_at).toEqual(earlier)
})

test('eight fan-outs at once give each event exactly one copy for each webhook', async () => {
  const labId = newId(130)
  const webhooks = [await world.webhook({ endpoint, labId }), await world.webhook({ endpoint, labId })]
  const events = await Promise.all(Array.from({ length: 60 }, () => world.event({ labId })))
  let routed = 0
  while (routed < events.length) {
    const results = await Promise.allSettled(Array.from({ length: 8 }, () => route(7)))
    for (const result of results) if (result.status === 'fulfilled') routed += result.value.events
  }
  expect(routed).toBe(events.length)
  const rows = await db.database.knex('delivery_queue').whereIn(
    'event_id',
    events.map((event) => event.id),
  )
  expect(rows).toHaveLength(events.length * webhooks.length)
})

test('an independent oracle agrees over 600 random events', async () => {
  const labs = [newId(200), newId(201)]
  const corporates = [newId(210), newId(211)]
  const organizations = [newId(220), newId(221), newId(222)]
  const types: EventType[] = ['lead.created', 'booking.created', 'bill.created']
  let seed = 42
  const pick = <T>(from: readonly T[]): T => from[(seed = (seed * 48271) % 2147483647) % from.length]!
  const registered = []
  for (let n = 0; n < 40; n++) {
    const party = pick(['none', 'none', 'corporate', 'organization'] as const)
    const wish = {
      labId: pick(labs),
      events: types.filter(() => pick([true, false])),
      ...(party === 'corporate' ? { corporateId: pick(corporates) } : {}),
      ...(party === 'organization' ? { organizationId: pick(organizations) } : {}),
    }
    if (wish.events.length === 0) wish.events.push(pick(EVENT_TYPES))
    registered.push({ ...wish, ...(await world.webhook({ endpoint, ...wish })) })
  }
  const events = []
  for (let n = 0; n < 600; n++) {
    events.push(
      await world.event({
        labId: pick(labs),
        type: pick(types),
        corporateId: pick([null, ...corporates]),
        doctorId: pick([null, ...organizations]),
        hospitalId: pick([null, ...organizations]),
      }),
    )
  }
  while ((await route(100)).events > 0);
  for (const event of events) {
    const parties = [event.doctorId, event.hospitalId]
    const expected = registered.filter((webhook) => {
      if (webhook.labId !== event.labId || !webhook.events.includes(event.type)) return false
      if ('corporateId' in webhook) return webhook.corporateId === event.corporateId
      return 'organizationId' in webhook ? parties.includes(webhook.organizationId as string) : true
    })
    expect(await idsFor(event.id)).toEqual(expected.map((webhook) => webhook.id).sort())
  }
})
