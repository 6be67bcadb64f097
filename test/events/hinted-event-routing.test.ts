import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { LaneOwnership, type TakenLane, type TakingAlong } from '../../daemon/lane-ownership.ts'
import { COMMIT } from '../../db/batch.ts'
import { settleLanes, takeStatements } from '../../src/deliveries/lanes-repository.ts'
import { routeEvents, type Routed } from '../../src/events/event-routing.ts'
import { routeHinted } from '../../src/events/hinted-event-routing.ts'
import { newId } from '../../src/ids.ts'
import { monotonicMs } from '../../src/clock.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { takeLane } from '../support/take-lane.ts'

const endpoint = 'https://partner.example.com/'

let db: TestDatabase
let world: DeliveryWorld
let ownership: LaneOwnership
let labs = 0

beforeAll(async () => {
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
  ownership = new LaneOwnership(db.database, world.keys, world.clock)
})
afterAll(async () => {
  await world.close()
  await db.close()
})

/** They are daemons in name only. */
afterEach(async () => {
  await db.database.knex('lanes').update({ owner: null })
})

/** A lab of its own. @returns its id and its webhooks' in their order */
async function labWith(webhooks: number): Promise<{ labId: string; ids: string[] }> {
  const labId = newId(1000 + labs++)
  const ids: string[] = []
  for (let n = 0; n < webhooks; n++) ids.push((await world.webhook({ endpoint, labId })).id)
  return { labId, ids: ids.sort() }
}

interface Fanned {
  routed: Routed
  taken: TakenLane[]
}

async function byHint(eventId: string, token = newId(0), exceptIds: string[] = []): Promise<Fanned> {
  const along = ownership.takingAnyAlong(exceptIds, token, (webhookId) => !exceptIds.includes(webhookId))
  const routed = await routeHinted(db.database.batch, eventId, world.clock.now(), along)
  return { routed, taken: along.read(routed.taken) }
}

async function byLooking(token: string): Promise<Fanned> {
  let along: TakingAlong | undefined
  const routed = await routeEvents(
    db.database.batch,
    world.clock.now(),
    1000,
    (...given) => (along = given[0].length > 0 ? ownership.takingAlong(...given, token) : undefined),
  )
  return { routed, taken: along?.read(routed.taken) ?? [] }
}

const rowsOf = (table: string, webhookIds: string[]) =>
  db.database.knex(table).whereIn('webhook_id', webhookIds).orderBy('webhook_id')

async function everything(): Promise<unknown> {
  const { knex } = db.database
  const tables = ['unrouted_events', 'delivery_queue', 'lanes', 'messages']
  return Promise.all(tables.map((table) => knex(table).orderByRaw('1, 2')))
}

/** What came of it without ids and times, which differ from one lab to the next. */
async function shapeOf(ids: string[], { routed, taken }: Fanned, token: string): Promise<unknown> {
  const place = (id: string) => ids.indexOf(id)
  const byPlace = (a: { webhook_id: string }, b: { webhook_id: string }) => place(a.webhook_id) - place(b.webhook_id)
  const queue = (await rowsOf('delivery_queue', ids)).sort(byPlace)
  const lanes = (await rowsOf('lanes', ids)).sort(byPlace)
  const least = (id: string) => Math.min(...queue.filter((row) => row.webhook_id === id).map((row) => +row.due_at))
  return {
    events: routed.events,
    named: routed.eventIds.length,
    normalMessages: routed.normalMessages,
    due: routed.webhookIds.map(place).sort(),
    queue: queue.map((row) => ({ ...row, webhook_id: place(row.webhook_id), event_id: 'x', due_at: 'x' })),
    lanes: lanes.map((lane) => ({
      ...lane,
      webhook_id: place(lane.webhook_id),
      due_at: lane.due_at > least(lane.webhook_id) ? 'late' : 'in time',
      owner: lane.owner === token ? 'own' : lane.owner && 'other',
    })),
    taken: taken
      .map(({ state, settings, head, readAtMs, ...lane }) => ({
        ...lane,
        token: lane.token === token,
        isFresh: monotonicMs() - readAtMs < 5000,
        state: { ...state, webhookId: place(state.webhookId), updatedAt: 'x' },
        settings: settings instanceof Error ? settings : [settings.endpoint, settings.signingKeys.length],
        head: head?.map((copy) => ({ ...copy, webhookId: place(copy.webhookId), eventId: 'x', dueAt: 'x', body: 'x' })),
      }))
      .sort((a, b) => a.state.webhookId - b.state.webhookId),
  }
}

/** A lane where something waits already, a free one, one that another daemon owns, and one of a webhook that was deleted since. */
async function prepared(): Promise<{ ids: string[]; eventId: string }> {
  const { labId, ids } = await labWith(1)
  const { knex } = db.database
  await world.event({ labId })
  await routeEvents(db.database.batch, world.clock.now(), 1000)
  for (const table of ['delivery_queue', 'lanes']) {
    await knex(table)
      .where({ webhook_id: ids[0] })
      .update({ due_at: new Date(world.clock.nowMs() + 60_000) })
  }
  for (let n = 0; n < 3; n++) ids.push((await world.webhook({ endpoint, labId })).id)
  await takeLane(db.database, ids[2]!, newId(0))
  const { id: eventId } = await world.event({ labId })
  await world.deleteWebhook(ids[3]!, labId)
  return { ids, eventId }
}

test('an event that is named is fanned out as one that is looked for', async () => {
  const token = newId(0)
  const looked = await prepared()
  const general = await shapeOf(looked.ids, await byLooking(token), token)
  const hinted = await prepared()
  const named = await byHint(hinted.eventId, token)
  expect(await shapeOf(hinted.ids, named, token)).toEqual(general)
  expect(named.taken.flatMap(({ head = [] }) => head.map((copy) => copy.eventId))).toEqual([hinted.eventId])
  expect(named.routed.eventIds).toEqual([hinted.eventId])
  expect(await db.database.knex('unrouted_events').where({ event_id: hinted.eventId })).toEqual([])
})

test('an id of nothing, of a message, or of what was routed before changes nothing', async () => {
  const { labId } = await labWith(2)
  const { id: eventId } = await world.event({ labId })
  expect((await byHint(eventId)).routed.events).toBe(1)
  const message = await world.message({ labId })
  const before = await everything()
  for (const id of [eventId, message.id, newId(5)]) {
    const { routed, taken } = await byHint(id)
    expect(routed).toMatchObject({ events: 0, eventIds: [], webhookIds: [], normalMessages: 0 })
    expect(taken).toEqual([])
  }
  expect(await everything()).toEqual(before)
  await routeEvents(db.database.batch, world.clock.now(), 1000)
})

test('lanes that are to be left alone, and those of others, are due and not taken', async () => {
  const { labId, ids } = await labWith(3)
  const other = newId(0)
  await takeLane(db.database, ids[0]!, other)
  const { id: eventId } = await world.event({ labId })
  const token = newId(0)
  const { routed, taken } = await byHint(eventId, token, [ids[1]!])
  expect(routed.webhookIds).toEqual(ids)
  expect(taken.map(({ state }) => state.webhookId)).toEqual([ids[2]])
  const lanes = await rowsOf('lanes', ids)
  expect(lanes.map(({ owner }) => owner)).toEqual([other, null, token])
  expect(lanes.map((lane) => lane.due_at)).toEqual((await rowsOf('delivery_queue', ids)).map((copy) => copy.due_at))
})

test('a lane that is this daemon’s already and to be left alone is not taken again', async () => {
  const { labId, ids } = await labWith(1)
  const token = newId(0)
  await takeLane(db.database, ids[0]!, token)
  const { id: eventId } = await world.event({ labId })
  expect((await byHint(eventId, token, ids)).taken).toEqual([])
})

test('of more lanes than go along none is taken, and each is due', async () => {
  const { labId, ids } = await labWith(3)
  const { id: eventId } = await world.event({ labId })
  const along = { ...ownership.takingAnyAlong([], newId(0), () => true), most: 2 }
  const routed = await routeHinted(db.database.batch, eventId, world.clock.now(), along)
  expect(routed.webhookIds).toEqual(ids)
  expect(along.read(routed.taken)).toEqual([])
  const lanes = await rowsOf('lanes', ids)
  expect(lanes.map(({ owner, due_at: dueAt }) => [owner, dueAt !== null])).toEqual(ids.map(() => [null, true]))
})

test('an event that nobody gets is routed', async () => {
  const { id: eventId } = await world.event({ labId: newId(900) })
  const { routed, taken } = await byHint(eventId)
  expect(routed).toMatchObject({ events: 1, eventIds: [eventId], webhookIds: [] })
  expect(taken).toEqual([])
  expect(await db.database.knex('unrouted_events').where({ event_id: eventId })).toEqual([])
})

test('an event that another daemon is routing is not waited for', async () => {
  const { labId } = await labWith(1)
  const { id: eventId } = await world.event({ labId })
  await db.database.transaction(async (trx) => {
    await trx('unrouted_events').where({ event_id: eventId }).forUpdate().first()
    const startedAtMs = monotonicMs()
    expect((await byHint(eventId)).routed.events).toBe(0)
    expect(monotonicMs() - startedAtMs).toBeLessThan(500)
  })
  expect((await byHint(eventId)).routed.events).toBe(1)
})

test('several that route the same events at the same time make one set of copies, and never wait in a circle', async () => {
  const { labId, ids } = await labWith(12)
  const { batch } = db.database
  for (let round = 0; round < 25; round++) {
    const events = await Promise.all(Array.from({ length: 3 }, () => world.event({ labId })))
    const tokens = [newId(0), newId(0)]
    const took = await Promise.all([
      ...events.flatMap(({ id }) => tokens.map((token) => byHint(id, token))),
      byLooking(tokens[0]!),
      batch.transaction((send) => send([...takeStatements(ids, newId(0)), COMMIT])).then(() => undefined),
      batch.transaction((send) => settleLanes(send, ids, tokens[1]!, [COMMIT])).then(() => undefined),
    ])
    await byLooking(tokens[0]!)
    const routed = took.flatMap((one) => one?.routed.eventIds ?? [])
    expect(new Set(routed).size).toBe(routed.length)
    for (const { id } of events) {
      expect(
        await db.database.knex('delivery_queue').where({ event_id: id }).orderBy('webhook_id').pluck('webhook_id'),
      ).toEqual(ids)
    }
    for (const lane of await rowsOf('lanes', ids)) expect(lane.due_at).not.toBeNull()
  }
})

/**
 * What MariaDB does for a moment in the middle of a commit, held still: the row that waits can be locked, and its event is not to
 * be seen. A fan-out that took the row along would make no copy, and nobody would look for the event again.
 */
test('an event that can’t be seen yet is left to the next fan-out, and those beside it are not', async () => {
  const { labId, ids } = await labWith(2)
  const { knex } = db.database
  const hidden = await world.event({ labId })
  const row = await knex('events').where({ id: hidden.id }).first()
  await knex('events').where({ id: hidden.id }).delete()
  const beside = await world.event({ labId })
  let looking: Promise<Fanned>
  await knex.transaction(async (trx) => {
    await trx('events').insert(row)
    expect((await byHint(hidden.id)).routed.events).toBe(0)
    looking = byLooking(newId(0))
    await sleep(200)
  })
  expect((await looking!).routed.eventIds).toEqual([beside.id])
  expect(await knex('unrouted_events').pluck('event_id')).toEqual([hidden.id])
  expect((await byLooking(newId(0))).routed.eventIds).toEqual([hidden.id])
  const copies = await rowsOf('delivery_queue', ids)
  expect(copies.map(({ event_id: id, webhook_id: of }) => `${id} ${of}`).sort()).toEqual(
    [hidden.id, beside.id].flatMap((id) => ids.map((of) => `${id} ${of}`)).sort(),
  )
})

test('what is left of an event that there is not keeps nobody waiting', async () => {
  const { labId, ids } = await labWith(1)
  const { knex } = db.database
  const gone = await world.event({ labId })
  await knex('events').where({ id: gone.id }).delete()
  await knex('event_bodies').where({ event_id: gone.id }).delete()
  const { id } = await world.event({ labId })
  expect((await byHint(gone.id)).routed.events).toBe(0)
  expect((await byLooking(newId(0))).routed.eventIds).toContain(id)
  expect(await knex('unrouted_events')).toEqual([])
  expect((await rowsOf('delivery_queue', ids)).map(({ event_id }) => event_id)).toEqual([id])
})
