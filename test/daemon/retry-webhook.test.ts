import { afterAll, beforeAll, expect, test } from 'vitest'
import { retryWebhook } from '../../daemon/jobs/retry-webhook.ts'
import { listDueDeliveries } from '../../src/deliveries/delivery-queue-repository.ts'
import { HandDaemon } from '../support/hand-daemon.ts'
import { openLaneJobs, type LaneJobs } from '../support/lane-jobs.ts'

let jobs: LaneJobs
const inMinutes = (minutes: number) => new Date(jobs.world.clock.nowMs() + minutes * 60_000)

beforeAll(async () => {
  jobs = await openLaneJobs()
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

test('a copy that is never taken, beside others that are, is tried twice before its time and then at its time, not at each 2xx', async () => {
  const { world, db } = jobs
  const { knex } = db.database
  const { id } = await world.webhook({ endpoint: `${jobs.receiver.url}/poison` })
  const daemon = new HandDaemon(world)
  const poison = (await world.event()).id
  for (let n = 0; n < 5; n++) await world.event()
  await daemon.route()
  expect(await daemon.take(id)).toBe(true)
  const [, ...others] = await daemon.waiting(id)
  const eagerUntil = async (): Promise<Date | null> =>
    (await knex('lanes').where({ webhook_id: id }).first('eager_until')).eager_until
  /** What the recovered lane reads at a time, of what has failed. */
  const pulled = async (now: Date) => {
    const times = { now, until: (await eagerUntil())! }
    const read = await listDueDeliveries(knex, id, times, undefined, 100)
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

  // A fourth within the minute, whatever is taken meanwhile.
  await daemon.record([{ copy: await daemon.copyOf(id, poison), ok: false }])
  await daemon.record([{ copy: others[2]!, ok: true }])
  const waitsMs = async () => (await daemon.copyOf(id, poison)).dueAt.getTime() - world.clock.nowMs()
  expect(await waitsMs()).toBeLessThanOrEqual(40_000)
  expect(await waitsMs()).toBeGreaterThan(30_000)
  expect(await pulled(world.clock.now())).toEqual([])
  await knex('delivery_queue').where({ webhook_id: id, event_id: poison }).update({ due_at: world.clock.now() })

  await daemon.record([{ copy: await daemon.copyOf(id, poison), ok: false }])
  await daemon.record([{ copy: others[3]!, ok: true }])
  expect(await pulled(world.clock.now())).toEqual([])
  expect(await pulled(inMinutes(2 * 60 - 1))).toEqual([])
  expect(await pulled(inMinutes(2 * 60 + 13))).toEqual([poison])

  // After an attempt at its time the next one may come before its time again.
  await knex('delivery_queue').where({ webhook_id: id, event_id: poison }).update({ due_at: world.clock.now() })
  await daemon.record([{ copy: await daemon.copyOf(id, poison), ok: false }])
  await daemon.record([{ copy: others[4]!, ok: true }])
  expect(await pulled(world.clock.now())).toEqual([poison])
  await daemon.record([{ copy: await daemon.copyOf(id, poison), ok: true }])
  await knex('lanes').where({ webhook_id: id }).update({ owner: null })
})
