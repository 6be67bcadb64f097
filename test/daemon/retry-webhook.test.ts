import { afterAll, beforeAll, expect, test } from 'vitest'
import { retryWebhook } from '../../daemon/jobs/retry-webhook.ts'
import { COMMIT } from '../../db/batch.ts'
import { listDueDeliveries } from '../../src/deliveries/delivery-queue-repository.ts'
import { settleLanes } from '../../src/deliveries/lanes-repository.ts'
import { HandDaemon } from '../support/hand-daemon.ts'
import { openLaneJobs, type LaneJobs } from '../support/lane-jobs.ts'
import { isUnderWay } from '../support/under-way.ts'

let jobs: LaneJobs
const inMinutes = (minutes: number) => new Date(jobs.world.clock.nowMs() + minutes * 60_000)

/** After so many of its requests, and as slow as one that is elsewhere, one path fails; all others are answered well. */
const GOOD = 20
const ELSEWHERE_MS = 20
let goneAgain = 0

async function answer({ path }: { path: string }): Promise<{ status: number }> {
  if (path !== '/gone-again') return { status: 204 }
  goneAgain += 1
  const status = goneAgain > GOOD ? 500 : 204
  await new Promise((resolve) => setTimeout(resolve, ELSEWHERE_MS))
  return { status }
}

beforeAll(async () => {
  jobs = await openLaneJobs(answer)
})
afterAll(() => jobs.close())

test('a failing webhook that answers again gets all that waits, also what was not due yet, and is healthy', async () => {
  const { id } = await jobs.world.webhook({ endpoint: `${jobs.receiver.url}/again` })
  const daemon = new HandDaemon(jobs.world)
  for (let n = 0; n < 3; n++) await jobs.world.event()
  await daemon.route()
  expect(await daemon.take(id)).toBe(true)
  const failed = await daemon.waiting(id)
  await daemon.record(failed.slice(1).map((copy) => ({ copy, ok: false })))
  const { knex } = jobs.db.database
  expect((await knex('webhooks').where({ id }).first('first_failure_at')).first_failure_at).not.toBeNull()
  await knex('delivery_queue')
    .where({ webhook_id: id, attempts: 1 })
    .update({ due_at: inMinutes(10) })
  await knex('lanes').where({ webhook_id: id }).update({ owner: null })
  await retryWebhook(jobs.lanes)(id)
  expect(jobs.receiver.requests).toHaveLength(3)
  expect(await daemon.waiting(id)).toEqual([])
  expect((await knex('webhooks').where({ id }).first('first_failure_at')).first_failure_at).toBeNull()
})

test('a copy that is never taken, beside others that are, is tried twice before its time for each attempt at its time, not at each 2xx', async () => {
  const { world, db } = jobs
  const { knex } = db.database
  const { id } = await world.webhook({ endpoint: `${jobs.receiver.url}/poison` })
  const daemon = new HandDaemon(world)
  const poison = (await world.event()).id
  for (let n = 0; n < 7; n++) await world.event()
  await daemon.route()
  expect(await daemon.take(id)).toBe(true)
  const [, ...others] = await daemon.waiting(id)
  const eagerUntil = async (): Promise<Date | null> =>
    (await knex('lanes').where({ webhook_id: id }).first('eager_until')).eager_until
  /** What the recovered lane reads at a time, of what has failed. */
  const pulled = async (now: Date) => {
    const times = { now, until: (await eagerUntil())! }
    const read = await listDueDeliveries(knex, { webhookId: id, times, after: undefined, limit: 100 })
    return read.filter(({ attempts }) => attempts > 0).map(({ eventId }) => eventId)
  }

  // Together, as the recorder may get them: the webhook has recovered all the same.
  const together = await daemon.record([
    { copy: await daemon.copyOf(id, poison), ok: false },
    { copy: others[0]!, ok: true },
  ])
  expect(together.healthChanges).toEqual([{ webhookId: id, to: 'healthy' }])
  expect(await eagerUntil()).not.toBeNull()
  expect(await pulled(world.clock.now())).toEqual([])

  // The second attempt at its time, five seconds later; then the next one that is taken brings the third at once.
  await knex('delivery_queue').where({ webhook_id: id, event_id: poison }).update({ due_at: world.clock.now() })
  const second = await daemon.record([{ copy: await daemon.copyOf(id, poison), ok: false }])
  expect(second.healthChanges).toEqual([{ webhookId: id, to: 'failing' }])
  expect(await eagerUntil()).toBeNull()
  await daemon.record([{ copy: others[1]!, ok: true }])
  expect(await pulled(world.clock.now())).toEqual([poison])

  // One more within the minute, whatever is taken meanwhile; and so once more, for it has had two attempts at their time.
  const makeDue = () =>
    knex('delivery_queue').where({ webhook_id: id, event_id: poison }).update({ due_at: world.clock.now() })
  const waitsMs = async () => (await daemon.copyOf(id, poison)).dueAt.getTime() - world.clock.nowMs()
  for (const [n, brought] of [[poison], []].entries()) {
    await daemon.record([{ copy: await daemon.copyOf(id, poison), ok: false }])
    await daemon.record([{ copy: others[2 + 2 * n]!, ok: true }])
    expect(await waitsMs()).toBeLessThanOrEqual(40_000)
    expect(await waitsMs()).toBeGreaterThan(30_000)
    expect(await pulled(world.clock.now())).toEqual([])
    await makeDue()
    await daemon.record([{ copy: await daemon.copyOf(id, poison), ok: false }])
    await daemon.record([{ copy: others[3 + 2 * n]!, ok: true }])
    expect(await pulled(world.clock.now())).toEqual(brought)
  }
  // It waits as after the second attempt at its time.
  expect(await pulled(inMinutes(4))).toEqual([])
  expect(await pulled(inMinutes(6))).toEqual([poison])

  // After an attempt at its time the next one may come before its time again.
  await makeDue()
  await daemon.record([{ copy: await daemon.copyOf(id, poison), ok: false }])
  await daemon.record([{ copy: others[6]!, ok: true }])
  expect(await pulled(world.clock.now())).toEqual([poison])
  // With a schedule of hundreds of attempts as well: no more than can be counted.
  const counted = (attempts: number, early: number) =>
    knex('delivery_queue').where({ webhook_id: id, event_id: poison }).update({ attempts, early_attempts: early })
  const { attempts, earlyAttempts } = await daemon.copyOf(id, poison)
  await counted(600, 248)
  expect(await pulled(world.clock.now())).toEqual([poison])
  await counted(600, 250)
  expect(await pulled(world.clock.now())).toEqual([])
  await counted(attempts, earlyAttempts)
  await daemon.record([{ copy: await daemon.copyOf(id, poison), ok: true }])
  await knex('lanes').where({ webhook_id: id }).update({ owner: null })
})

test('an endpoint that is back for a moment only uses up none of what waits: the next recovery brings all of it', async () => {
  const { world, db } = jobs
  const { knex } = db.database
  const { id } = await world.webhook({ endpoint: `${jobs.receiver.url}/flaps` })
  const daemon = new HandDaemon(world)
  const copy = (await world.event()).id
  const others = [(await world.event()).id, (await world.event()).id]
  await daemon.route()
  expect(await daemon.take(id)).toBe(true)
  const waiting = () => daemon.copyOf(id, copy)
  const atItsTime = () =>
    knex('delivery_queue').where({ webhook_id: id, event_id: copy }).update({ due_at: world.clock.now() })
  // Seven attempts at their time, twelve hours and a half of failing: it waits for the eighth.
  for (let n = 0; n < 7; n++) {
    await atItsTime()
    await daemon.record([{ copy: await waiting(), ok: false }])
  }
  const eagerUntil = async (): Promise<Date | null> =>
    (await knex('lanes').where({ webhook_id: id }).first('eager_until')).eager_until
  for (const other of others) {
    await daemon.record([{ copy: await daemon.copyOf(id, other), ok: true }])
    const times = { now: world.clock.now(), until: (await eagerUntil())! }
    const brought = await listDueDeliveries(knex, { webhookId: id, times, after: undefined, limit: 100 })
    expect(brought.map(({ eventId }) => eventId)).toContain(copy)
    // Twice in vain, and it waits for its eighth again.
    await daemon.record([{ copy: await waiting(), ok: false }])
    await atItsTime()
    await daemon.record([{ copy: await waiting(), ok: false }])
    expect((await waiting()).dueAt.getTime()).toBeGreaterThan(inMinutes(5 * 60).getTime())
  }
  await daemon.record([{ copy: await waiting(), ok: true }])
  await knex('lanes').where({ webhook_id: id }).update({ owner: null })
})

test('an endpoint that fails again gets no more of what waits for its time', async () => {
  const { world, db, receiver } = jobs
  const { knex } = db.database
  const { id } = await world.webhook({ endpoint: `${receiver.url}/gone-again` })
  const daemon = new HandDaemon(world)
  const inAll = 400
  for (let n = 0; n <= inAll; n++) await world.event()
  await daemon.route()
  expect(await daemon.take(id)).toBe(true)
  const [first, ...others] = await daemon.waiting(id)
  await daemon.record(others.map((copy) => ({ copy, ok: false })))
  await knex('delivery_queue')
    .where({ webhook_id: id })
    .whereNot({ event_id: first!.eventId })
    .update({ due_at: inMinutes(10) })
  await knex('lanes').where({ webhook_id: id }).update({ owner: null })
  await retryWebhook(jobs.lanes)(id)
  const again = await knex('delivery_queue').where({ webhook_id: id }).groupBy('early_attempts').select('early_attempts', knex.raw('COUNT(*) AS n')) // prettier-ignore
  const counts = Object.fromEntries(again.map((row) => [row.early_attempts, Number(row.n)]))
  // What was under way, and not the rest of what was read ahead.
  expect(counts[1]).toBeGreaterThan(0)
  expect(counts[1]).toBeLessThan(100)
  expect(counts[0]).toBeGreaterThan(250)
  expect((await knex('webhooks').where({ id }).first('first_failure_at')).first_failure_at).not.toBeNull()
})

test('a lane that is given back after a recovery that it has not seen is due at once', async () => {
  const { world, db } = jobs
  const { knex } = db.database
  const { id } = await world.webhook({ endpoint: `${jobs.receiver.url}/unseen` })
  const daemon = new HandDaemon(world)
  for (let n = 0; n < 2; n++) await world.event()
  await daemon.route()
  expect(await daemon.take(id)).toBe(true)
  for (const copy of await daemon.waiting(id)) await daemon.record([{ copy, ok: false }])
  const [first, second] = await daemon.waiting(id)
  await knex('delivery_queue')
    .where({ webhook_id: id, event_id: second!.eventId })
    .update({ due_at: inMinutes(120) })
  await daemon.record([{ copy: first!, ok: true }])
  const isDue = async () =>
    (await knex('lanes').where({ webhook_id: id }).first('due_at')).due_at.getTime() <= world.clock.nowMs()
  await knex('lanes').where({ webhook_id: id }).update({ due_at: world.clock.now() })
  await db.database.batch.transaction((send) => settleLanes(send, [id], daemon.token, [COMMIT]))
  expect(await isDue()).toBe(true)
  // Once a lane has found that nothing is left of it, its next one is: here by hand.
  await daemon.take(id)
  await knex('lanes').where({ webhook_id: id }).update({ eager_until: null })
  await db.database.batch.transaction((send) => settleLanes(send, [id], daemon.token, [COMMIT]))
  expect(await isDue()).toBe(false)
})

test('a lane that has run dry after a recovery sends nothing more while it is given back', async () => {
  const { world, db, receiver, lanes } = jobs
  const { knex } = db.database
  const { id } = await world.webhook({ endpoint: `${receiver.url}/dry` })
  const daemon = new HandDaemon(world)
  for (let n = 0; n < 3; n++) await world.event()
  await daemon.route()
  expect(await daemon.take(id)).toBe(true)
  const [failed, , late] = await daemon.waiting(id)
  await daemon.record([{ copy: failed!, ok: false }])
  await knex('delivery_queue')
    .where({ webhook_id: id, event_id: failed!.eventId })
    .update({ due_at: inMinutes(10) })
  const ofLate = { webhook_id: id, event_id: late!.eventId }
  const row = await knex('delivery_queue').where(ofLate).first()
  await knex('delivery_queue').where(ofLate).delete()
  await knex('lanes').where({ webhook_id: id }).update({ owner: null })
  const requestsTo = () => receiver.requests.filter(({ path }) => path === '/dry').length

  const running = retryWebhook(lanes)(id)
  await expect.poll(requestsTo, { timeout: 5000 }).toBe(2)
  // Recorded as well: that needs the lane's row, too.
  await expect.poll(() => daemon.waiting(id)).toEqual([])
  const waitsForTheLane = () => isUnderWay(knex, 'update `lanes` set `eager_until`')
  // Its last statement waits for the row; meanwhile something comes in.
  await knex.transaction(async (trx) => {
    await trx('lanes').where({ webhook_id: id }).forUpdate().first('webhook_id')
    await expect.poll(waitsForTheLane, { timeout: 5000, interval: 10 }).toBe(true)
    await knex('delivery_queue').insert(row)
    expect(lanes.nudge([id])).toEqual([id])
    await new Promise((resolve) => setTimeout(resolve, 300))
    expect(requestsTo()).toBe(2)
  })
  await running
  await retryWebhook(lanes)(id)
  expect(requestsTo()).toBe(3)
  expect(await daemon.waiting(id)).toEqual([])
})
