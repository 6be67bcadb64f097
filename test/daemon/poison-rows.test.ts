/**
 * Rows that nobody can use, by hand or by a restore that went wrong: they cost their own webhook its deliveries, and nobody else.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { newId, publicEventId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { createTestTls } from '../support/tls.ts'

let db: TestDatabase
let tls: Awaited<ReturnType<typeof createTestTls>>
let world: DeliveryWorld
let receiver: HttpsReceiver

beforeAll(async () => {
  tls = await createTestTls()
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
  receiver = await startHttpsReceiver(tls)
})
afterAll(async () => {
  await world.close()
  await receiver.close()
  await db.close()
  tls.remove()
})

test('webhooks and events with rows that are broken stop nobody else, and the daemon ends as always', async () => {
  const { knex } = db.database
  const webhook = async (path: string) => (await world.webhook({ endpoint: `${receiver.url}/${path}` })).id
  await webhook('healthy')
  await knex('webhooks')
    .where({ id: await webhook('no-url') })
    .update({ endpoint: 'no url at all' })
  await knex('webhooks')
    .where({ id: await webhook('empty') })
    .update({ endpoint: '' })
  await knex('webhook_secrets')
    .where({ webhook_id: await webhook('secret') })
    .update({ sealed: Buffer.alloc(60) })
  await knex('webhook_secrets')
    .where({ webhook_id: await webhook('no-secret') })
    .delete()
  await knex('webhook_events')
    .where({ webhook_id: await webhook('unknown-event') })
    .update({ event_type: 'no.such_event' })

  const bodiless = await world.event()
  await knex('event_bodies').where({ event_id: bodiless.id }).delete()
  const daemon = await world.daemon(tls.caFile)
  const sent: string[] = []
  for (let n = 0; n < 3; n++) sent.push(`evt_${(await world.event()).id}`)
  const healthy = () => receiver.requests.filter(({ path }) => path === '/healthy')
  await expect.poll(() => healthy().length, { timeout: 20_000 }).toBe(3)
  expect(healthy().map(({ headers }) => headers['webhook-id'])).toEqual(expect.arrayContaining(sent))
  expect(new Set(receiver.requests.map(({ path }) => path))).toEqual(new Set(['/healthy']))
  await daemon.stop()
  expect(await knex('lanes').whereNotNull('owner')).toEqual([])
})

test('a result that no repetition records keeps neither the others from being recorded nor the daemon from ending', async () => {
  const { knex } = db.database
  const { id: webhookId } = await world.webhook({ endpoint: `${receiver.url}/recorded` })
  const poison = await world.event()
  await knex.raw(`ALTER TABLE deliveries ADD CONSTRAINT no_poison CHECK (event_id <> '${poison.id}')`)
  const daemon = await world.daemon(tls.caFile)
  const others = [await world.event(), await world.event()].map(({ id }) => id)
  const ended = () => knex('deliveries').where({ webhook_id: webhookId }).orderBy('event_id').pluck('event_id')
  await expect.poll(ended, { timeout: 20_000 }).toEqual(others.toSorted())
  await daemon.stop()
  // It was sent and is not recorded: the next daemon sends it again.
  expect(await knex('delivery_queue').where({ webhook_id: webhookId }).pluck('event_id')).toEqual([poison.id])
  expect(await knex('lanes').whereNotNull('owner')).toEqual([])
}, 15_000)

test('an event that can’t be fanned out keeps no other from its fan-out, and is named', async () => {
  const { knex } = db.database
  const labId = newId(1)
  const { id: webhookId } = await world.webhook({ endpoint: `${receiver.url}/routed`, labId })
  const poison = await world.event({ labId })
  // Its copy is there already, which no fan-out expects.
  await knex('delivery_queue').insert({ webhook_id: webhookId, due_at: new Date(0), event_id: poison.id, epoch: 1 })
  const others: string[] = []
  for (let n = 0; n < 20; n++) others.push((await world.event({ labId })).id)
  const daemon = await world.daemon(tls.caFile)
  const unrouted = () => knex('unrouted_events').pluck('event_id')
  await expect.poll(unrouted, { timeout: 10_000 }).toEqual([poison.id])
  const routed = () => receiver.requests.filter(({ path }) => path === '/routed').map(({ headers }) => headers['webhook-id']) // prettier-ignore
  await expect.poll(routed, { timeout: 10_000 }).toEqual(expect.arrayContaining(others.map(publicEventId)))
  const later = await world.event({ labId })
  await expect.poll(routed, { timeout: 10_000 }).toContain(publicEventId(later.id))
  const failed = world.logged.filter(({ event }) => event === 'event.routing_failed')
  expect(failed).toMatchObject([{ level: 50, eventId: poison.id }])
  await daemon.stop()
  await knex('unrouted_events').delete()
}, 40_000)
