import { afterAll, beforeAll, expect, test } from 'vitest'
import { askToReadSettings, confirmSettingsRead, listOwnedLanes } from '../../src/deliveries/lanes-repository.ts'
import { HandDaemon } from '../support/hand-daemon.ts'
import { openLaneJobs, type LaneJobs } from '../support/lane-jobs.ts'

const WEBHOOKS = 30
const ANSWER_MS = 5000
/** All change in one transaction: they are read together, or some a moment later. */
const MOST_STATEMENTS = 6

let jobs: LaneJobs

beforeAll(async () => {
  jobs = await openLaneJobs(() => new Promise((resolve) => setTimeout(() => resolve({ status: 204 }), ANSWER_MS)))
})
afterAll(() => jobs.close())

test('settings of many lanes that change at once are read together: meanwhile no other lane’s view grows old', async () => {
  const { world, lanes, receiver, db } = jobs
  const { knex } = db.database
  const ids: string[] = []
  for (let n = 0; n < WEBHOOKS; n++) ids.push((await world.webhook({ endpoint: `${receiver.url}/${n}` })).id)
  await world.event()
  await new HandDaemon(world).route()
  const runs = ids.map((id) => lanes.run(id))
  await receiver.arrived(WEBHOOKS)
  const statements: string[] = []
  knex.on('query', ({ sql }: { sql: string }) => {
    if (/webhook_secrets|set.+settings_changed_at.+= (null|\?)/is.test(sql)) statements.push(sql)
  })
  await db.database.transaction(async (trx) => {
    for (const id of ids) await askToReadSettings(trx, id, world.clock.now())
  })
  statements.length = 0
  const unread = () => knex('lanes').whereNotNull('settings_changed_at').pluck('webhook_id')
  await expect.poll(unread, { timeout: 3000 }).toEqual([])
  expect(statements.length).toBeGreaterThan(0)
  expect(statements.length).toBeLessThanOrEqual(MOST_STATEMENTS)
  await Promise.all(runs)
})

test('settings that change again while they are read stay asked for', async () => {
  const { world, db } = jobs
  const { knex } = db.database
  const ids = [(await world.webhook({ endpoint: 'https://a.example/1' })).id, (await world.webhook({ endpoint: 'https://a.example/2' })).id] // prettier-ignore
  const token = 'x'.repeat(26)
  const first = new Date('2026-11-20T10:00:00.120Z')
  await knex('lanes').whereIn('webhook_id', ids).update({ owner: token, settings_changed_at: first })
  const lanes = await listOwnedLanes(knex, token)
  const second = new Date('2026-11-20T10:00:00.121Z')
  await knex('lanes').where({ webhook_id: ids[1] }).update({ settings_changed_at: second })
  await confirmSettingsRead(knex, lanes, token)
  const rows = await knex('lanes').whereIn('webhook_id', ids).orderBy('webhook_id').pluck('settings_changed_at')
  expect(rows).toEqual([null, second])
  await knex('lanes').whereIn('webhook_id', ids).update({ owner: null, settings_changed_at: null })
})
