/**
 * The loop of a daemon for which many events wait: two fan-outs at once.
 */
import { afterEach, beforeEach, expect, test } from 'vitest'
import { Ticker, type TickerOptions } from '../../daemon/ticker.ts'
import type { Database } from '../../db/connection.ts'
import { monotonicMs } from '../../src/clock.ts'
import { newId } from '../../src/ids.ts'
import { createLogger } from '../../src/logger.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'

const MANY = 3250

let db: TestDatabase
let world: DeliveryWorld
let webhookId: string
let eventIds: string[]

beforeEach(async () => {
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
  webhookId = (await world.webhook({ endpoint: 'https://partner.example.com/' })).id
  eventIds = await recordEvents(MANY)
})
afterEach(async () => {
  await world.close()
  await db.close()
})

async function recordEvents(count: number): Promise<string[]> {
  const ids = Array.from({ length: count }, () => newId(world.clock.nowMs()))
  const { knex } = db.database
  const recordedAt = knex.raw('UTC_TIMESTAMP(6)')
  const event = { account_id: world.accountId, lab_id: world.labId, type: 'lead.created', recorded_at: recordedAt }
  const insert = (table: string, rows: object[]) => knex.batchInsert(table, rows, 500)
  await insert('events', ids.map((id) => ({ ...event, id, subject_id: id }))) // prettier-ignore
  await insert('event_bodies', ids.map((id) => ({ event_id: id, body: Buffer.from('{}') }))) // prettier-ignore
  await insert('unrouted_events', ids.map((id) => ({ event_id: id }))) // prettier-ignore
  return ids
}

/** How many fan-outs have been under way at once, at each that began. */
function countingDatabase(atOnce: number[]): Database {
  const { batch, knex } = db.database
  let underWay = 0
  const transaction: Database['batch']['transaction'] = async (work) => {
    underWay += 1
    atOnce.push(underWay)
    return batch.transaction(work).finally(() => (underWay -= 1))
  }
  return { knex, batch: { transaction } } as unknown as Database
}

function tickerOf(options: Partial<TickerOptions>): Ticker {
  return new Ticker({
    database: db.database,
    clock: world.clock,
    log: createLogger('daemon', 'silent'),
    owns: () => true,
    offer: () => {},
    leftAlone: () => [],
    chooseAlong: () => undefined,
    chooseAnyAlong: () => undefined,
    takenEarly: () => {},
    confirmed: () => {},
    routed: () => {},
    messagesDue: () => {},
    recovering: () => {},
    ...options,
  })
}

const waiting = () => db.database.knex('unrouted_events').pluck('event_id')
const copies = () => db.database.knex('delivery_queue').where({ webhook_id: webhookId }).orderBy('event_id').pluck('event_id') // prettier-ignore

test('fans all of them out once, two batches at once after the first full one, and takes lanes only where it is alone', async () => {
  const atOnce: number[] = []
  const routed: string[] = []
  const underWayWhenChosen: number[] = []
  const ticker = tickerOf({
    database: countingDatabase(atOnce),
    routed: (batch) => routed.push(...batch.eventIds),
    chooseAlong: () => {
      underWayWhenChosen.push(atOnce.at(-1)!)
      return undefined
    },
  })
  ticker.start()
  try {
    await expect.poll(() => routed.length, { timeout: 20_000 }).toBe(MANY)
  } finally {
    await ticker.stop()
  }
  expect(await copies()).toEqual(eventIds.toSorted())
  expect(routed.toSorted()).toEqual(eventIds.toSorted())
  expect(await waiting()).toEqual([])
  expect(atOnce.slice(0, 2)).toEqual([1, 1])
  expect(Math.max(...atOnce)).toBe(2)
  expect(underWayWhenChosen[0]).toBe(1)
  expect(Math.max(...underWayWhenChosen)).toBe(1)
})

test('an event among them that can’t be fanned out is stepped over, and all others are fanned out once', async () => {
  const poison = eventIds.toSorted()[1700]!
  // Its copy is there already, which no fan-out expects.
  const dueAt = world.clock.now()
  await db.database.knex('delivery_queue').insert({ webhook_id: webhookId, due_at: dueAt, event_id: poison, epoch: 1 })
  await db.database.knex('lanes').where({ webhook_id: webhookId }).update({ due_at: dueAt })
  const failed: unknown[] = []
  const log = createLogger('daemon', 'silent')
  log.error = ((fields: unknown) => failed.push(fields)) as typeof log.error
  const ticker = tickerOf({ log })
  ticker.start()
  try {
    await expect.poll(waiting, { timeout: 20_000 }).toEqual([poison])
    await expect.poll(() => failed.length, { timeout: 20_000 }).toBe(1)
  } finally {
    await ticker.stop()
  }
  expect(await copies()).toEqual(eventIds.toSorted())
  await db.database.knex('unrouted_events').delete()
})

test('says that it comes round for as long as they keep it busy', async () => {
  const startedAtMs = monotonicMs()
  const ages: { ageMs: number; sinceStartMs: number }[] = []
  let routed = 0
  const ticker: Ticker = tickerOf({
    routed: ({ eventIds }) => {
      routed += eventIds.length
      ages.push({ ageMs: ticker.ageMs, sinceStartMs: monotonicMs() - startedAtMs })
    },
  })
  ticker.start()
  try {
    await expect.poll(() => routed, { timeout: 20_000 }).toBe(MANY)
  } finally {
    await ticker.stop()
  }
  const { ageMs, sinceStartMs } = ages.at(-1)!
  expect(ages.length).toBeGreaterThan(6)
  expect(ageMs).toBeLessThan(sinceStartMs * 0.75)
})

test('fans out together what comes fast, and each event once', async () => {
  const fanOuts: { beganAtMs: number; endedAtMs: number; events: number }[] = []
  const { batch, knex } = db.database
  let beganAtMs = 0
  const transaction: Database['batch']['transaction'] = (work) => {
    beganAtMs = monotonicMs()
    return batch.transaction(work)
  }
  const routed: string[] = []
  const ticker = tickerOf({
    database: { knex, batch: { transaction } } as unknown as Database,
    routed: (one) => {
      routed.push(...one.eventIds)
      fanOuts.push({ beganAtMs, endedAtMs: monotonicMs(), events: one.eventIds.length })
    },
  })
  ticker.start()
  try {
    await expect.poll(() => routed.length, { timeout: 20_000 }).toBe(MANY)
    fanOuts.splice(0)
    for (let n = 0; n < 60; n++) {
      eventIds.push(...(await recordEvents(10)))
      ticker.wake(true)
    }
    await expect.poll(() => routed.length, { timeout: 20_000 }).toBe(eventIds.length)
  } finally {
    await ticker.stop()
  }
  expect(routed.toSorted()).toEqual(eventIds.toSorted())
  const pauses = fanOuts.slice(1).flatMap(({ beganAtMs: nextMs }, n) => {
    const { events, endedAtMs } = fanOuts[n]!
    return events >= 8 && events < 250 ? [nextMs - endedAtMs] : []
  })
  expect(pauses.length).toBeGreaterThan(1)
  // It is told of a fan-out a moment after the pause has begun.
  expect(Math.min(...pauses)).toBeGreaterThan(18)
})
