/**
 * A fan-out that is under way when its daemon is told to stop.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { Ticker } from '../../daemon/ticker.ts'
import type { Database } from '../../db/connection.ts'
import { createLogger } from '../../src/logger.ts'
import { openLaneJobs, type LaneJobs } from '../support/lane-jobs.ts'

let jobs: LaneJobs

beforeAll(async () => {
  jobs = await openLaneJobs()
})
afterAll(() => jobs.close())

/** The same database, which waits before it is sent the copies of a fan-out. */
function waitingDatabase(before: () => Promise<void>): Database {
  const { batch, knex } = jobs.db.database
  const transaction: Database['batch']['transaction'] = (work) =>
    batch.transaction((send) =>
      work(async (statements) => {
        if (statements.some(({ sql }) => sql.includes('INSERT INTO delivery_queue'))) await before()
        return send(statements)
      }),
    )
  return { knex, batch: { transaction } } as unknown as Database
}

test('takes no lane for the daemon: others need not wait until it has been given back', async () => {
  const { world, db, lanes, receiver } = jobs
  const { id } = await world.webhook({ endpoint: receiver.url })
  const event = await world.event()
  let go = () => {}
  const mayGo = new Promise<void>((resolve) => (go = resolve))
  let isThere = false
  const ticker = new Ticker({
    database: waitingDatabase(() => {
      isThere = true
      return mayGo
    }),
    clock: world.clock,
    log: createLogger('daemon', 'silent'),
    owns: (webhookId) => lanes.owns(webhookId),
    offer: () => {},
    leftAlone: () => [],
    chooseAlong: (...given) => lanes.chooseAlong(...given),
    chooseAnyAlong: () => undefined,
    takenEarly: () => {},
    confirmed: () => {},
    routed: () => {},
    messagesDue: () => {},
    recovering: () => {},
  })
  ticker.start()
  await expect.poll(() => isThere, { timeout: 10_000 }).toBe(true)
  const stopped = ticker.stop()
  go()
  await stopped
  const { knex } = db.database
  expect(await knex('delivery_queue').where({ webhook_id: id }).pluck('event_id')).toEqual([event.id])
  expect(await knex('lanes').where({ webhook_id: id }).first()).toMatchObject({ owner: null, due_at: expect.any(Date) })
})
