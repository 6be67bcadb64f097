/** A purge and a clock that is wrong for a while: what is purged is gone for good. */
import { performance } from 'node:perf_hooks'
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest'
import { purgeExpired } from '../../daemon/jobs/purge-expired.ts'
import { createLogger } from '../../src/logger.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { TestClock } from '../support/test-clock.ts'

const DAY_MS = 86_400_000

let db: TestDatabase
let world: DeliveryWorld

beforeAll(async () => {
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
})
afterEach(async () => {
  for (const table of ['purge_runs', 'events', 'event_bodies']) await db.database.knex(table).delete()
})
afterAll(async () => {
  await world.close()
  await db.close()
})

const daysLater = (days: number) => new TestClock(new Date(world.clock.nowMs() + days * DAY_MS).toISOString())
const purge = (clock: TestClock, stopping = () => false) =>
  purgeExpired({
    ...{ database: db.database, clock, stopping, log: createLogger('daemon', 'silent') },
    settings: { payloadRetentionDays: 30, logRetentionDays: 90 },
  })
const hasBody = async (id: string) => Boolean(await db.database.knex('event_bodies').where({ event_id: id }).first())

async function routedEvent(): Promise<string> {
  const { id } = await world.event()
  await db.database.knex('unrouted_events').delete()
  return id
}

test('none goes by a clock that was set forward a moment ago, and may be put right again', async () => {
  const id = await routedEvent()
  const clock = daysLater(0)
  const run = purge(clock)
  clock.advance(365 * DAY_MS)
  await run()
  expect(await hasBody(id)).toBe(true)
  clock.advance(-365 * DAY_MS)
  await run()
  expect(await hasBody(id)).toBe(true)
  // One that stays as it is is gone by in the end.
  clock.advance(365 * DAY_MS)
  await run()
  vi.spyOn(performance, 'now').mockReturnValue(performance.now() + 601_000)
  clock.advance(601_000)
  await run().finally(() => vi.restoreAllMocks())
  expect(await hasBody(id)).toBe(false)
})

test('one that began by a clock which is put right again removes nothing more, and begins anew', async () => {
  const id = await routedEvent()
  const clock = daysLater(365)
  let looks = 0
  await purge(clock, () => {
    // Behind the look before anything is begun.
    if (looks++ > 0) clock.set(world.clock.now().toISOString())
    return false
  })()
  expect(looks).toBeGreaterThan(1)
  expect(await hasBody(id)).toBe(true)
  const { due_at: dueAt } = await db.database.knex('purge_runs').first('due_at')
  expect(dueAt).toEqual(clock.now())
})
