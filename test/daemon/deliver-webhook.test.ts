import { afterAll, beforeAll, expect, test } from 'vitest'
import { deliverWebhook } from '../../daemon/jobs/deliver-webhook.ts'
import { HandDaemon } from '../support/hand-daemon.ts'
import { openLaneJobs, type LaneJobs } from '../support/lane-jobs.ts'

let jobs: LaneJobs

beforeAll(async () => {
  jobs = await openLaneJobs()
})
afterAll(() => jobs.close())

test('the job ends when all that was due has been sent and recorded, and its lane is free again', async () => {
  const { id } = await jobs.world.webhook({ endpoint: `${jobs.receiver.url}/ok` })
  const daemon = new HandDaemon(jobs.world)
  for (let n = 0; n < 5; n++) await jobs.world.event()
  await daemon.route()
  await deliverWebhook(jobs.lanes)(id)
  expect(jobs.receiver.requests).toHaveLength(5)
  expect(await daemon.waiting(id)).toEqual([])
  const { knex } = jobs.db.database
  expect(await knex('deliveries').where({ webhook_id: id }).pluck('status')).toEqual(Array(5).fill('delivered'))
  expect(await knex('lanes').where({ webhook_id: id }).first('owner', 'due_at')).toEqual({ owner: null, due_at: null })
})

test('a lane that another daemon owns is left to it, and nothing is sent until that one has gone', async () => {
  const { id } = await jobs.world.webhook({ endpoint: `${jobs.receiver.url}/other` })
  const other = new HandDaemon(jobs.world)
  await jobs.world.event()
  await other.route()
  expect(await other.take(id)).toBe(true)
  const before = jobs.receiver.requests.length
  await deliverWebhook(jobs.lanes)(id)
  expect(jobs.receiver.requests).toHaveLength(before)
  expect(await other.waiting(id)).toHaveLength(1)
  const { knex } = jobs.db.database
  expect(await knex('lanes').where({ webhook_id: id }).first('owner')).toEqual({ owner: other.token })
  await knex('lanes').where({ webhook_id: id }).update({ owner: null })
  await deliverWebhook(jobs.lanes)(id)
  expect(jobs.receiver.requests.slice(before).map(({ path }) => path)).toEqual(['/other'])
})
