/**
 * A fan-out whose answer comes late: what it has read of a lane may not be so any more.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { deliverWebhook } from '../../daemon/jobs/deliver-webhook.ts'
import { routeHinted } from '../../src/events/hinted-event-routing.ts'
import { HandDaemon } from '../support/hand-daemon.ts'
import { openLaneJobs, type LaneJobs } from '../support/lane-jobs.ts'

let jobs: LaneJobs

beforeAll(async () => {
  jobs = await openLaneJobs()
})
afterAll(() => jobs.close())

test('a lane that was given back meanwhile, and is another daemon’s, is not run by who has read it as its own', async () => {
  const { world, db, receiver, lanes } = jobs
  const { knex, batch } = db.database
  const { id } = await world.webhook({ endpoint: receiver.url })
  const other = new HandDaemon(world)
  await world.event()
  await other.route()
  const running = deliverWebhook(lanes)(id)
  await receiver.arrived(1)
  // It has listened for most of its second: an answer that is older than 750 ms starts nothing anyway.
  await new Promise((resolve) => setTimeout(resolve, 700))

  const event = await world.event()
  const along = lanes.chooseAnyAlong()!
  const { taken, webhookIds } = await routeHinted(batch, event.id, world.clock.now(), along)
  expect(webhookIds).toEqual([id])
  // Its answer is on the way until the lane has listened enough.
  await running
  expect(await knex('lanes').where({ webhook_id: id }).first('owner')).toEqual({ owner: null })
  expect(await other.take(id)).toBe(true)
  expect(lanes.nudge([id])).toEqual([id])
  lanes.runTaken(along.read(taken))
  await new Promise((resolve) => setTimeout(resolve, 100))
  expect(receiver.requests).toHaveLength(1)

  await other.record([{ copy: await other.copyOf(id, event.id), ok: true }])
  await knex('lanes').where({ webhook_id: id }).update({ owner: null })
})
