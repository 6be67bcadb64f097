/**
 * Messages with everything real: daemons, the integrator's endpoint, the lab's gateway.
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { startHttpsReceiver, type Answer, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { publicEventId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { TestGateway } from '../support/gateway.ts'
import { createTestTls } from '../support/tls.ts'

const HOUR_MS = 3_600_000

let db: TestDatabase
let tls: Awaited<ReturnType<typeof createTestTls>>
let world: DeliveryWorld
let receiver: HttpsReceiver
let gateway: TestGateway
let answer: () => Answer | Promise<Answer>

beforeAll(async () => {
  tls = await createTestTls()
  db = await openTestDatabase()
})
afterAll(async () => {
  await db.close()
  tls.remove()
})
beforeEach(async () => {
  answer = () => ({ status: 200 })
  receiver = await startHttpsReceiver(tls, () => answer())
  gateway = await new TestGateway().start()
  world = await new DeliveryWorld(db.database).open()
})
afterEach(async () => {
  await world.close()
  await receiver.close()
  await gateway.close()
  for (const table of ['delivery_queue', 'deliveries', 'lanes', 'webhooks', 'webhook_events', 'daemons', 'messages']) {
    await db.database.knex(table).delete()
  }
})

const knex = () => db.database.knex
const daemon = () => world.daemon(tls.caFile, { MESSAGE_GATEWAY_URL: gateway.url })
const hook = (path = '') => world.webhook({ endpoint: `${receiver.url}/${path}`, events: ['booking.send'] })
const until = (condition: () => Promise<boolean>) =>
  expect.poll(condition, { timeout: 20_000, interval: 10 }).toBe(true)
const states = async () => (await knex()('messages').orderBy('event_id')).map(({ state }) => state)

async function messages(count: number): Promise<string[]> {
  const recorded = await Promise.all(Array.from({ length: count }, () => world.message()))
  return recorded.map(({ id }) => publicEventId(id)).sort()
}

/** The endpoint has failed each of them once, and they wait for their next try. */
async function triedOnce(count: number): Promise<void> {
  await until(async () => (await knex()('delivery_queue').where({ attempts: 1 })).length === count)
}

test('a message that a webhook takes is not sent by us', async () => {
  await hook()
  await daemon()
  const [id] = await messages(1)
  const [request] = await receiver.arrived(1)
  expect(request!.headers['webhook-id']).toBe(id)
  await until(async () => (await states())[0] === 'taken')
  expect(gateway.calls).toEqual([])
})

test('a message that no webhook gets is at the gateway at once', async () => {
  await daemon()
  const [id] = await messages(1)
  expect(await gateway.took(1)).toEqual([id])
  await until(async () => (await knex()('messages').whereNotNull('sent_at')).length === 1)
  expect(await states()).toEqual(['normal'])
})

describe('deleting a webhook', () => {
  test('brings each of its waiting messages to the gateway, once', async () => {
    answer = () => ({ status: 500 })
    const webhook = await hook()
    await Promise.all([daemon(), daemon()])
    const ids = await messages(40)
    await triedOnce(40)
    await world.deleteWebhook(webhook.id)
    await gateway.took(40)
    await until(async () => (await knex()('messages').whereNull('sent_at')).length === 0)
    expect([...gateway.taken].sort()).toEqual(ids)
    expect(new Set(await states())).toEqual(new Set(['normal']))
    expect(new Set((await knex()('deliveries')).map(({ status }) => status))).toEqual(new Set(['discarded']))
  })

  test('lets the attempt in flight decide about its message', async () => {
    const open: ((answer: Answer) => void)[] = []
    answer = () => new Promise((resolve) => open.push(resolve))
    const webhook = await hook()
    await daemon()
    await messages(2)
    await receiver.arrived(2)
    await world.deleteWebhook(webhook.id)
    open[0]!({ status: 200 })
    open[1]!({ status: 500 })
    await gateway.took(1)
    await until(async () => !(await states()).includes('offered'))
    expect((await states()).sort()).toEqual(['normal', 'taken'])
    expect(gateway.taken).toHaveLength(1)
  })

  test('does not wait with the others for an endpoint that hangs', async () => {
    const open: ((answer: Answer) => void)[] = []
    answer = () => new Promise((resolve) => open.push(resolve))
    const webhook = await hook()
    await daemon()
    const ids = await messages(8)
    const underWay = (await receiver.arrived(2)).map(({ headers }) => headers['webhook-id'])
    await world.deleteWebhook(webhook.id)
    const others = ids.filter((id) => !underWay.includes(id))
    expect([...(await gateway.took(6))].sort()).toEqual(others)
    // Neither of the two has been answered, or given up.
    expect((await knex()('delivery_queue')).map(({ attempts }) => attempts)).toEqual([0, 0])
    open[0]!({ status: 500 })
    expect(await gateway.took(7)).toHaveLength(7)
    expect((await knex()('delivery_queue')).map(({ attempts }) => attempts)).toEqual([0])
    open[1]!({ status: 500 })
    expect([...(await gateway.took(8))].sort()).toEqual(ids)
    await until(async () => (await knex()('lanes').where({ owner: null })).length === 1)
    expect(await knex()('lanes').first('clean_epoch')).toEqual(await knex()('webhooks').first({ clean_epoch: 'epoch' }))
  })

  test('with another one on the same message, both at once, brings it to the gateway once', async () => {
    answer = () => ({ status: 500 })
    const webhooks = [await hook('a'), await hook('b')]
    await Promise.all([daemon(), daemon()])
    const ids = await messages(20)
    await triedOnce(40)
    await Promise.all(webhooks.map(({ id }) => world.deleteWebhook(id)))
    await gateway.took(20)
    await until(async () => (await knex()('messages').whereNull('sent_at')).length === 0)
    expect([...gateway.taken].sort()).toEqual(ids)
  })
})

test('a deleted webhook whose secret does not open hands its messages back all the same', async () => {
  const webhook = await hook()
  await knex()('webhook_secrets')
    .where({ webhook_id: webhook.id })
    .update({ sealed: Buffer.alloc(60) })
  const ids = await messages(3)
  await world.deleteWebhook(webhook.id)
  await daemon()
  expect([...(await gateway.took(3))].sort()).toEqual(ids)
  expect(receiver.requests).toEqual([])
})

test('a webhook whose secret is spoilt while its lane is busy stops alone', async () => {
  const open: ((answer: Answer) => void)[] = []
  answer = () => new Promise((resolve) => open.push(resolve))
  const spoilt = await hook('spoilt')
  await daemon()
  await messages(10)
  await receiver.arrived(2)
  await knex()('webhook_secrets')
    .where({ webhook_id: spoilt.id })
    .update({ sealed: Buffer.alloc(60) })
  await knex()('webhooks')
    .where({ id: spoilt.id })
    .update({ updated_at: new Date(world.clock.nowMs() + 1000) })
  answer = () => ({ status: 200 })
  await hook('sound')
  // Longer than a lane goes on without having read its own state again.
  for (const startedAt = performance.now(); performance.now() - startedAt < 1500;) {
    const [id] = await messages(1)
    const isIt = (request: { path: string; headers: NodeJS.Dict<string | string[]> }) =>
      request.path === '/sound' && request.headers['webhook-id'] === id
    await until(async () => receiver.requests.some(isIt))
  }
  expect(receiver.requests.filter(({ path }) => path === '/spoilt')).toHaveLength(2)
  for (const end of open) end({ status: 500 })
}, 30_000)

test('auto-deletion brings the waiting messages to the gateway, but not those older than 24 hours', async () => {
  answer = () => ({ status: 500 })
  const webhook = await hook()
  await daemon()
  const ids = await messages(6)
  await triedOnce(6)
  const dayAgo = new Date(world.clock.nowMs() - 24 * HOUR_MS - 1000)
  const old = ids.slice(0, 2).map((id) => id.slice(publicEventId('').length))
  await knex()('messages').whereIn('event_id', old).update({ created_at: dayAgo })
  await knex()('webhooks').where({ id: webhook.id }).update({ first_failure_at: dayAgo })
  const [last] = await messages(1)
  const expected = [...ids.slice(2), last!].sort()
  await gateway.took(expected.length)
  await until(async () => !(await states()).includes('offered'))
  expect([...gateway.taken].sort()).toEqual(expected)
  expect((await states()).filter((state) => state === 'expired')).toHaveLength(2)
  expect(await knex()('webhooks').where({ id: webhook.id }).first()).toMatchObject({ state: 'auto_deleted' })
})

test('a gateway that is down for a while loses no message and gets none twice', async () => {
  gateway.answer = () => 503
  await daemon()
  const ids = await messages(5)
  await until(async () => gateway.calls.length >= 1 && !(await states()).includes('offered'))
  gateway.answer = () => 200
  await knex()('messages').update({ due_at: world.clock.now() })
  ids.push(...(await messages(1)))
  await gateway.took(6)
  await until(async () => (await knex()('messages').whereNull('sent_at')).length === 0)
  expect([...gateway.taken].sort()).toEqual(ids.sort())
})

test('events that are no messages never reach the gateway', async () => {
  const webhook = await world.webhook({ endpoint: receiver.url, events: ['lead.created'] })
  answer = () => ({ status: 500 })
  await daemon()
  await world.event()
  await world.event({ type: 'bill.created' })
  await triedOnce(1)
  await world.deleteWebhook(webhook.id)
  await until(async () => (await knex()('delivery_queue')).length === 0)
  expect(gateway.calls).toEqual([])
})
