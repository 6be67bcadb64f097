/**
 * The database's clock set back. Here its past is moved instead: everything that was written gets times that are three hours
 * later, as if the clock had been there. `faketime.test.ts` sets a real server's clock.
 */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { followClock } from '../../daemon/jobs/follow-clock.ts'
import { createLogger } from '../../src/logger.ts'
import { newId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { HandDaemon } from '../support/hand-daemon.ts'

const log = createLogger('daemon', 'silent')
const HOUR_MS = 3_600_000
const SET_BACK_HOURS = 3
const WAIT_SECONDS = 18_000
/** What a look may be late, and the statements between two times that are compared. */
const CLOSE_MS = 30_000

let db: TestDatabase
let world: DeliveryWorld
let daemon: HandDaemon

beforeAll(async () => {
  db = await openTestDatabase()
})
afterAll(() => db.close())
beforeEach(async () => {
  world = await new DeliveryWorld(db.database).open()
  daemon = new HandDaemon(world, { RETRY_SCHEDULE: String(WAIT_SECONDS) })
})
afterEach(async () => {
  await world.close()
  const tables =
    'delivery_queue unrouted_events lanes webhooks webhook_events mails messages earlier_attempts deliveries purge_runs'
  for (const table of tables.split(' ')) await knex()(table).delete()
})

const knex = () => db.database.knex
const job = () => followClock({ database: db.database, clock: world.clock, log })
/** Looks so often. */
const look = async (times: number, run = job()) => {
  for (let n = 0; n < times; n++) await run()
}
const dueTimes = async (table = 'delivery_queue'): Promise<number[]> =>
  (await knex()(table).whereNotNull('due_at').orderBy('due_at').pluck('due_at')).map((at) => at.getTime())

/** As many webhooks, each with a copy that failed and waits five hours, and one that was not sent yet. */
async function waitingCopies(webhooks: number): Promise<void> {
  for (let n = 0; n < webhooks; n++) await world.webhook({ endpoint: `https://127.0.0.1:9/${n}` })
  await world.event()
  const { webhookIds } = await daemon.route()
  const copies = []
  for (const id of webhookIds) {
    await daemon.take(id)
    copies.push(...(await daemon.waiting(id)))
  }
  await daemon.record(copies.map((copy) => ({ copy, ok: false })))
  await world.event()
  await daemon.route()
}

/** What was written so far was written by a clock that is set back now. */
async function setBack(): Promise<void> {
  await look(1)
  for (const [table, column] of [
    ['delivery_queue', 'due_at'],
    ['lanes', 'due_at'],
    ['mails', 'due_at'],
    ['messages', 'due_at'],
    ['earlier_attempts', 'recorded_at'],
    ['purge_runs', 'due_at'],
  ]) {
    await knex().raw(`UPDATE ?? SET ?? = ?? + INTERVAL ${SET_BACK_HOURS} HOUR`, [table!, column!, column!])
  }
}

function expectClose(actual: number[], expected: number[]): void {
  expect(actual).toHaveLength(expected.length)
  for (const [n, at] of actual.entries()) expect(Math.abs(at - expected[n]!)).toBeLessThan(CLOSE_MS)
}

test('what waits for its retry, or was not sent yet, waits for what was left of its time', async () => {
  await waitingCopies(3)
  const before = await dueTimes()
  expect(before.filter((at) => at > world.clock.nowMs() + 4 * HOUR_MS)).toHaveLength(3)
  const lanesBefore = await dueTimes('lanes')
  await setBack()
  await look(2)
  expectClose(await dueTimes(), before)
  expectClose(await dueTimes('lanes'), lanesBefore)
  expect(await knex()('delivery_queue').where('due_at', '<=', world.clock.now())).toHaveLength(3)
  await look(3)
  expectClose(await dueTimes(), before)
})

test('the first look only notes it: a process may still go by the clock as it was', async () => {
  await waitingCopies(1)
  await setBack()
  const after = await dueTimes()
  await look(1)
  expect(await dueTimes()).toEqual(after)
})

test('of several daemons that look at once, one moves what waits', async () => {
  await waitingCopies(3)
  const before = await dueTimes()
  await setBack()
  const jobs = Array.from({ length: 6 }, job)
  await Promise.all(jobs.map((run) => look(1, run)))
  const outcomes = await Promise.allSettled(jobs.map((run) => look(1, run)))
  expect(outcomes.filter(({ status }) => status === 'fulfilled').length).toBeGreaterThan(0)
  expectClose(await dueTimes(), before)
})

test('where a lane can’t be locked nothing is moved, and everything at the next look', async () => {
  await waitingCopies(3)
  const before = await dueTimes()
  await setBack()
  const after = await dueTimes()
  const run = job()
  await look(1, run)
  const [last] = await knex()('lanes').orderBy('webhook_id', 'desc').limit(1)
  const trx = await knex().transaction()
  await trx('lanes').where({ webhook_id: last.webhook_id }).forUpdate().first()
  await expect(run()).rejects.toMatchObject({ errno: 1205 })
  await trx.rollback()
  expect(await dueTimes()).toEqual(after)
  await look(1, run)
  expectClose(await dueTimes(), before)
})

test('what was recorded by the clock as it is now stays', async () => {
  await waitingCopies(1)
  await setBack()
  await world.event()
  const { webhookIds } = await daemon.route()
  const [copy] = (await daemon.waiting(webhookIds[0]!)).filter(({ dueAt }) => dueAt.getTime() <= world.clock.nowMs())
  await daemon.record([{ copy: copy!, ok: false }])
  const mine = () => knex()('delivery_queue').where({ event_id: copy!.eventId }).first()
  const { due_at: dueAt } = await mine()
  expect(dueAt.getTime()).toBeGreaterThan(world.clock.nowMs() + 4 * HOUR_MS)
  await look(2)
  expect(await mine()).toMatchObject({ due_at: dueAt })
})

test('a queue of more rows than one statement moves is moved once, all of it', async () => {
  const ROWS = 25_000
  const { id } = await world.webhook({ endpoint: 'https://127.0.0.1:9/' })
  // Eight hours of them: what was moved lies where others were that are still to be moved.
  const startMs = world.clock.nowMs() + HOUR_MS
  const wanted = Array.from({ length: ROWS }, (_, n) => Math.round(startMs + (n * 8 * HOUR_MS) / ROWS))
  const rows = wanted.map((at, n) => ({
    webhook_id: id,
    due_at: new Date(at),
    event_id: newId(n),
    attempts: 1,
    epoch: 1,
  }))
  await knex().batchInsert('delivery_queue', rows, 5000)
  await knex()('lanes')
    .where({ webhook_id: id })
    .update({ due_at: new Date(startMs) })
  await setBack()
  await look(2)
  expectClose(await dueTimes(), wanted)
})

test('a message that waits for its gateway waits for what was left of its time, too', async () => {
  await world.message()
  await daemon.route()
  const [message] = await knex()('messages')
  expect(message).toBeDefined()
  await knex()('messages').update({ due_at: new Date(world.clock.nowMs() + 60_000) })
  const before = await dueTimes('messages')
  await setBack()
  await look(2)
  expectClose(await dueTimes('messages'), before)
})

test('a clock that is set forwards, or back by seconds, moves nothing', async () => {
  await waitingCopies(1)
  await look(1)
  const before = await dueTimes()
  for (const seconds of [-90_000, 8]) {
    await knex()('purge_runs').update({ due_at: new Date(world.clock.nowMs() + seconds * 1000) })
    await look(3)
  }
  expect(await dueTimes()).toEqual(before)
})
