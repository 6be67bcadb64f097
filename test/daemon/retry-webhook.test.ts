import { afterAll, beforeAll, expect, test } from 'vitest'
import { retryWebhook } from '../../daemon/jobs/retry-webhook.ts'
import { HandDaemon } from '../support/hand-daemon.ts'
import { openLaneJobs, type LaneJobs } from '../support/lane-jobs.ts'

let jobs: LaneJobs

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
  await knex('lanes').where({ webhook_id: id }).update({ owner: null })
  await retryWebhook(jobs.lanes)(id)
  expect(jobs.receiver.requests).toHaveLength(3)
  expect(await daemon.waiting(id)).toEqual([])
  expect((await knex('webhooks').where({ id }).first('first_failure_at')).first_failure_at).toBeNull()
})
