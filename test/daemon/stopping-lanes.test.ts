import { afterAll, beforeAll, expect, test } from 'vitest'
import { HandDaemon } from '../support/hand-daemon.ts'
import { openLaneJobs, type LaneJobs } from '../support/lane-jobs.ts'

const SLOW_MS = 4000
const FREE_WITHIN_MS = 2000

let jobs: LaneJobs

async function answer({ path }: { path: string }): Promise<{ status: number }> {
  if (path === '/slow') await new Promise((resolve) => setTimeout(resolve, SLOW_MS))
  return { status: 204 }
}

beforeAll(async () => {
  jobs = await openLaneJobs(answer)
})
afterAll(() => jobs.close())

test('a daemon that stops gives back the lanes that have nothing under way, and keeps those that have until it ends', async () => {
  const { world, lanes, receiver, db } = jobs
  const slow = (await world.webhook({ endpoint: `${receiver.url}/slow` })).id
  const quick = (await world.webhook({ endpoint: `${receiver.url}/quick` })).id
  await world.event()
  await new HandDaemon(world).route()
  const runs = [slow, quick].map((webhookId) => lanes.run(webhookId))
  await receiver.arrived(2)
  const owners = async () => {
    const rows = await db.database.knex('lanes').select('webhook_id', 'owner', 'due_at')
    return new Map(rows.map((row) => [row.webhook_id, row]))
  }
  expect((await owners()).get(quick).owner).not.toBeNull()
  let isStopped = false
  const stopped = lanes.stop().then(() => (isStopped = true))
  await expect.poll(async () => (await owners()).get(quick).owner, { timeout: FREE_WITHIN_MS }).toBeNull()
  expect((await owners()).get(slow).owner).not.toBeNull()
  // Its next owner settles it.
  expect((await owners()).get(quick).due_at).not.toBeNull()
  expect(isStopped).toBe(false)
  await Promise.all([stopped, ...runs])
  // As a daemon does with its own row.
  await db.database.knex('lanes').update({ owner: null })
})
