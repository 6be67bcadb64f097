/**
 * The row of one webhook's lane is held for long, while others are taken with it.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { HandDaemon } from '../support/hand-daemon.ts'
import { openLaneJobs, type LaneJobs } from '../support/lane-jobs.ts'

let jobs: LaneJobs

beforeAll(async () => {
  jobs = await openLaneJobs()
})
afterAll(() => jobs.close())

test('only that webhook waits for it', async () => {
  const { world, lanes, receiver, db } = jobs
  const { knex } = db.database
  const paths = ['/held', '/first', '/second']
  const webhooks = await Promise.all(paths.map((path) => world.webhook({ endpoint: `${receiver.url}${path}` })))
  await world.event()
  await new HandDaemon(world).route()
  const holding = await knex.transaction()
  try {
    await holding('lanes').where({ webhook_id: webhooks[0]!.id }).forUpdate()
    const runs = Promise.all(webhooks.map(({ id }) => lanes.run(id)))
    await receiver.arrived(2)
    await runs
    expect(receiver.requests.map(({ path }) => path).sort()).toEqual(['/first', '/second'])
  } finally {
    await holding.rollback()
  }
  await lanes.run(webhooks[0]!.id)
  expect(receiver.requests).toHaveLength(3)
})
