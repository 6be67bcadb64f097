/** What a daemon's tick finds, in one statement. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { findLogWebhook } from '../../src/deliveries/delivery-log-webhooks-repository.ts'
import { startRecovery } from '../../src/deliveries/recovery.ts'
import { WorkFinder } from '../../daemon/work-finder.ts'
import { findWork } from '../../src/deliveries/work-repository.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'

let db: TestDatabase
let world: DeliveryWorld

beforeAll(async () => {
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
})
afterAll(async () => {
  // What was set by hand only for the looks.
  for (const table of ['unrouted_events', 'event_bodies', 'events']) await knex()(table).delete()
  await knex()('webhooks').update({ first_failure_at: null })
  await world.close()
  await db.close()
})

const knex = () => db.database.knex
const work = () => findWork(knex(), world.clock.now(), 10)

test('it finds events that wait, lanes that are due and whether a recovery runs, each by itself', async () => {
  const [healthy, failing] = [await world.webhook({ endpoint: 'https://lims.example.in/a' }), await world.webhook({ endpoint: 'https://lims.example.in/b' })] // prettier-ignore
  const nothing = { unrouted: false, dueLanes: [], recovering: false }
  expect(await work()).toEqual(nothing)
  await world.event()
  expect(await work()).toEqual({ ...nothing, unrouted: true })
  await knex()('unrouted_events').delete()
  await knex()('webhooks').where({ id: failing.id }).update({ first_failure_at: world.clock.now() })
  const agoMs = (ms: number) => new Date(world.clock.nowMs() - ms)
  await knex()('lanes')
    .where({ webhook_id: failing.id })
    .update({ due_at: agoMs(2000) })
  await knex()('lanes')
    .where({ webhook_id: healthy.id })
    .update({ due_at: agoMs(1000) })
  const dueLanes = [
    { webhookId: failing.id, failing: true },
    { webhookId: healthy.id, failing: false },
  ]
  expect(await work()).toEqual({ ...nothing, dueLanes })
  const logged = (await findLogWebhook(knex(), world.accountId, world.labId, healthy.id, 'whole_lab'))!
  const { id } = await db.database.transaction((trx) => startRecovery(trx, logged, agoMs(3_600_000), world.clock.now()))
  await world.event()
  expect(await work()).toEqual({ unrouted: true, dueLanes, recovering: true })
  await knex()('recoveries').where({ id }).update({ state: 'completed' })
  expect(await work()).toEqual({ unrouted: true, dueLanes, recovering: false })
})

test('where all that it finds fails it looks beyond, for those that do not, and not each time', async () => {
  const healthy = await world.webhook({ endpoint: 'https://lims.example.in/c' })
  const agoMs = (ms: number) => new Date(world.clock.nowMs() - ms)
  const failing = []
  for (let n = 0; n < 5; n++) failing.push(await world.webhook({ endpoint: 'https://lims.example.in/d' }))
  const ids = failing.map(({ id }) => id)
  await knex()('lanes').update({ due_at: null })
  await knex()('webhooks')
    .whereIn('id', ids)
    .update({ first_failure_at: agoMs(0) })
  await knex()('lanes')
    .whereIn('webhook_id', ids)
    .update({ due_at: agoMs(5000) })
  await knex()('lanes')
    .where({ webhook_id: healthy.id })
    .update({ due_at: agoMs(1000) })
  const finder = new WorkFinder(knex())
  const found = async (most: number) => (await finder.find(world.clock.now(), most)).dueLanes
  expect(await found(5)).toContainEqual({ webhookId: healthy.id, failing: false })
  // Half a second has not gone by.
  expect(await found(5)).toHaveLength(5)
  expect(await found(6)).toContainEqual({ webhookId: healthy.id, failing: false })
})
