import { Webhook } from 'standardwebhooks'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import {
  startHttpsReceiver,
  type Answer,
  type HttpsReceiver,
  type ReceivedRequest,
} from '../../scripts/https-receiver.ts'
import { judgeAttempt, HEALTHY } from '../../src/webhooks/webhook-health.ts'
import { publicEventId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { createTestTls } from '../support/tls.ts'

let db: TestDatabase
let tls: Awaited<ReturnType<typeof createTestTls>>
let world: DeliveryWorld
let receiver: HttpsReceiver
let answer: (request: ReceivedRequest) => Answer | Promise<Answer>

beforeAll(async () => {
  tls = await createTestTls()
  db = await openTestDatabase()
})
afterAll(async () => {
  await db.close()
  tls.remove()
})
beforeEach(async () => {
  answer = () => ({ status: 204 })
  receiver = await startHttpsReceiver(tls, (request) => answer(request))
  world = await new DeliveryWorld(db.database).open()
})
afterEach(async () => {
  await world.close()
  await receiver.close()
  for (const table of ['delivery_queue', 'unrouted_events', 'lanes', 'webhooks', 'webhook_events', 'daemons']) {
    await db.database.knex(table).delete()
  }
})

const attemptsOf = (webhookId: string) => db.database.knex('attempts').where({ webhook_id: webhookId }).orderBy('seq')
const deliveriesOf = (webhookId: string) =>
  db.database.knex('deliveries').where({ webhook_id: webhookId }).orderBy('event_id')
const webhookRow = (id: string) => db.database.knex('webhooks').where({ id }).first()
const idsReceived = () => receiver.requests.map((request) => request.headers['webhook-id'] as string)

/** Waits until `condition` holds. */
async function until(condition: () => Promise<boolean> | boolean): Promise<void> {
  await expect.poll(condition, { timeout: 10_000, interval: 20 }).toBe(true)
}

describe('an event', () => {
  test('reaches its webhook with the exact bytes, a signature that the public library verifies, and is recorded', async () => {
    const webhook = await world.webhook({ endpoint: `${receiver.url}/hooks` })
    await world.daemon(tls.caFile)
    const event = await world.event()
    const [request] = await receiver.arrived(1)
    expect(request!.path).toBe('/hooks')
    expect(request!.body).toEqual(event.body)
    expect(request!.headers).toMatchObject({
      'content-type': 'application/json',
      'user-agent': 'LaboratoryIntegrationService/0.0.0-test',
      'webhook-id': publicEventId(event.id),
    })
    new Webhook(webhook.secret).verify(request!.body, request!.headers as Record<string, string>)
    await until(async () => (await deliveriesOf(webhook.id)).length === 1)
    expect(await deliveriesOf(webhook.id)).toMatchObject([{ event_id: event.id, status: 'delivered', attempts: 1 }])
    expect(await attemptsOf(webhook.id)).toMatchObject([
      { event_id: event.id, n: 1, seq: 1, class: 'ok', status: 204, error: null },
    ])
    expect(await db.database.knex('delivery_queue').where({ webhook_id: webhook.id })).toEqual([])
  })

  test('that was recorded while no daemon ran is delivered when one starts', async () => {
    await world.webhook({ endpoint: receiver.url })
    const event = await world.event()
    await world.daemon(tls.caFile)
    await receiver.arrived(1)
    expect(idsReceived()).toEqual([publicEventId(event.id)])
  })

  test('reaches every webhook under the same id, each with a signature of its own', async () => {
    const webhooks = [
      await world.webhook({ endpoint: `${receiver.url}/0` }),
      await world.webhook({ endpoint: `${receiver.url}/1` }),
    ]
    await world.daemon(tls.caFile)
    const event = await world.event()
    for (const request of await receiver.arrived(2)) {
      expect(request.headers['webhook-id']).toBe(publicEventId(event.id))
      const own = webhooks[Number(request.path.slice(1))]!
      const other = webhooks[1 - Number(request.path.slice(1))]!
      const headers = request.headers as Record<string, string>
      expect(() => new Webhook(own.secret).verify(request.body, headers)).not.toThrow()
      expect(() => new Webhook(other.secret).verify(request.body, headers)).toThrow()
    }
  })
})

describe('a failed delivery', () => {
  test('is tried again by the schedule with the same id, and a 2xx ends it', async () => {
    let failures = 2
    answer = () => ({ status: failures-- > 0 ? 503 : 200 })
    const webhook = await world.webhook({ endpoint: receiver.url })
    await world.daemon(tls.caFile, { RETRY_SCHEDULE: '0.2,0.4,100' })
    const event = await world.event()
    await receiver.arrived(3)
    await until(async () => (await deliveriesOf(webhook.id)).length === 1)
    expect(idsReceived()).toEqual(Array(3).fill(publicEventId(event.id)))
    const attempts = await attemptsOf(webhook.id)
    expect(attempts.map(({ n, status }) => [n, status])).toEqual([
      [1, 503],
      [2, 503],
      [3, 200],
    ])
    expect(await deliveriesOf(webhook.id)).toMatchObject([{ status: 'delivered', attempts: 3 }])
    for (const [index, waitMs] of [200, 400].entries()) {
      const gapMs = receiver.requests[index + 1]!.atMs - receiver.requests[index]!.atMs
      expect(gapMs).toBeGreaterThanOrEqual(waitMs)
    }
  })

  test('is signed anew at each attempt, with the time of the attempt', async () => {
    let failures = 1
    answer = () => ({ status: failures-- > 0 ? 500 : 200 })
    const webhook = await world.webhook({ endpoint: receiver.url })
    await world.daemon(tls.caFile, { RETRY_SCHEDULE: '1.1' })
    await world.event()
    const [first, second] = await receiver.arrived(2)
    expect(second!.headers['webhook-timestamp']).not.toBe(first!.headers['webhook-timestamp'])
    new Webhook(webhook.secret).verify(second!.body, second!.headers as Record<string, string>)
  })

  test('is exhausted after the last attempt and stays in the log', async () => {
    answer = () => ({ status: 410 })
    const webhook = await world.webhook({ endpoint: receiver.url })
    await world.daemon(tls.caFile, { RETRY_SCHEDULE: '0.1,0.1' })
    await world.event()
    await until(async () => (await deliveriesOf(webhook.id)).length === 1)
    expect(await deliveriesOf(webhook.id)).toMatchObject([{ status: 'exhausted', attempts: 3 }])
    expect(receiver.requests).toHaveLength(3)
  })

  test('notes the first failure; a 2xx clears it; the log replayed gives the row', async () => {
    answer = () => ({ status: 500 })
    const webhook = await world.webhook({ endpoint: receiver.url })
    await world.daemon(tls.caFile, { RETRY_SCHEDULE: '0.1,0.1,100' })
    await world.event()
    await until(async () => (await attemptsOf(webhook.id)).length === 3)
    const attempts = await attemptsOf(webhook.id)
    let health = HEALTHY
    for (const { class: kind, error, started_at, duration_ms } of attempts) {
      const endedAt = new Date(started_at.getTime() + duration_ms)
      health = judgeAttempt(health, kind === 'ok' ? { ok: true } : { ok: false, error }, endedAt, world.config()).health
    }
    const row = await webhookRow(webhook.id)
    const { first_failure_at, failed_attempts, last_error, warned_at } = row
    expect({
      firstFailureAt: first_failure_at,
      failedAttempts: failed_attempts,
      lastError: last_error,
      warnedAt: warned_at,
    }).toEqual(health)
    expect(health.failedAttempts).toBe(3)

    answer = () => ({ status: 200 })
    await world.event()
    await until(async () => (await webhookRow(webhook.id)).first_failure_at === null)
    expect(await webhookRow(webhook.id)).toMatchObject({ failed_attempts: 0, last_error: null })
  })

  test('that waits is sent soon after its webhook answers 2xx again', async () => {
    answer = () => ({ status: 500 })
    const webhook = await world.webhook({ endpoint: receiver.url })
    await world.daemon(tls.caFile, { RETRY_SCHEDULE: '3600' })
    for (let n = 0; n < 5; n++) await world.event()
    await until(async () => (await attemptsOf(webhook.id)).length === 5)
    answer = () => ({ status: 200 })
    await world.event()
    await until(async () => (await deliveriesOf(webhook.id)).length === 6)
    expect((await deliveriesOf(webhook.id)).every(({ status }) => status === 'delivered')).toBe(true)
    await until(
      async () => (await db.database.knex('lanes').where({ webhook_id: webhook.id }).first()).eager_until === null,
    )
  })
})

describe('a webhook that hangs', () => {
  test('delays no other webhook, and gets at most its window of requests', async () => {
    const release: (() => void)[] = []
    answer = (request) =>
      request.path === '/hanging'
        ? new Promise((resolve) => release.push(() => resolve({ status: 200 })))
        : { status: 200 }
    await world.webhook({ endpoint: `${receiver.url}/hanging` })
    await world.webhook({ endpoint: `${receiver.url}/healthy` })
    await world.daemon(tls.caFile)
    for (let n = 0; n < 30; n++) await world.event()
    await until(() => receiver.requests.filter(({ path }) => path === '/healthy').length === 30)
    expect(receiver.requests.filter(({ path }) => path === '/hanging')).toHaveLength(2)
    answer = () => ({ status: 200 })
    for (const end of release) end()
    await receiver.arrived(60)
  })

  test('never has more than DELIVERY_MAX_IN_FLIGHT requests at once', async () => {
    let inFlight = 0
    let most = 0
    answer = async () => {
      most = Math.max(most, ++inFlight)
      await new Promise((resolve) => setTimeout(resolve, 5))
      inFlight -= 1
      return { status: 200 }
    }
    await world.webhook({ endpoint: receiver.url })
    await world.daemon(tls.caFile, { DELIVERY_MAX_IN_FLIGHT: '4' })
    await Promise.all(Array.from({ length: 100 }, () => world.event()))
    await receiver.arrived(100)
    expect(most).toBeGreaterThan(1)
    expect(most).toBeLessThanOrEqual(4)
  })
})

describe('a deleted webhook', () => {
  test('gets no attempt any more; its waiting copies are discarded and stay in the log', async () => {
    answer = () => ({ status: 500 })
    const webhook = await world.webhook({ endpoint: receiver.url })
    await world.daemon(tls.caFile, { RETRY_SCHEDULE: '2,100' })
    for (let n = 0; n < 20; n++) await world.event()
    await until(async () => (await attemptsOf(webhook.id)).length === 20)
    await world.deleteWebhook(webhook.id)
    await until(async () => (await deliveriesOf(webhook.id)).length === 20)
    const sent = receiver.requests.length
    expect((await deliveriesOf(webhook.id)).every(({ status }) => status === 'discarded')).toBe(true)
    expect(await db.database.knex('delivery_queue').where({ webhook_id: webhook.id })).toEqual([])
    await new Promise((resolve) => setTimeout(resolve, 2500))
    expect(receiver.requests).toHaveLength(sent)
  })
})

describe('several daemons', () => {
  test('share the lanes and send nothing twice', async () => {
    for (let n = 0; n < 6; n++) await world.webhook({ endpoint: `${receiver.url}/${n}` })
    await Promise.all([world.daemon(tls.caFile), world.daemon(tls.caFile), world.daemon(tls.caFile)])
    for (let round = 0; round < 10; round++) await Promise.all(Array.from({ length: 20 }, () => world.event()))
    await receiver.arrived(1200)
    await world.settled()
    const copies = receiver.requests.map(({ path, headers }) => `${path} ${headers['webhook-id']}`)
    expect(copies).toHaveLength(1200)
    expect(new Set(copies).size).toBe(1200)
  })

  test('a graceful stop hands its lanes over at once, with nothing lost and nothing sent twice', async () => {
    for (let n = 0; n < 4; n++) await world.webhook({ endpoint: `${receiver.url}/${n}` })
    const first = await world.daemon(tls.caFile)
    const events = (async () => {
      for (let round = 0; round < 20; round++) await Promise.all(Array.from({ length: 10 }, () => world.event()))
    })()
    await receiver.arrived(50)
    await world.daemon(tls.caFile)
    await first.stop()
    await events
    await receiver.arrived(800)
    await world.settled()
    const copies = receiver.requests.map(({ path, headers }) => `${path} ${headers['webhook-id']}`)
    expect(copies).toHaveLength(800)
    expect(new Set(copies).size).toBe(800)
  })

  test('the lanes of a daemon whose beat stands still are taken over', async () => {
    const webhook = await world.webhook({ endpoint: receiver.url })
    await db.database.knex('daemons').insert({
      token: '0'.repeat(26),
      beat: 7,
      hint_host: '127.0.0.1',
      hint_port: 9,
      started_at: world.clock.now(),
    })
    await db.database
      .knex('lanes')
      .where({ webhook_id: webhook.id })
      .update({ owner: '0'.repeat(26) })
    await world.event()
    await world.daemon(tls.caFile)
    await receiver.arrived(1, 12_000)
    expect(
      await db.database
        .knex('daemons')
        .where({ token: '0'.repeat(26) })
        .first(),
    ).toBeUndefined()
  })
})

describe('a webhook whose secret does not open', () => {
  test('stops nobody else', async () => {
    const broken = await world.webhook({ endpoint: `${receiver.url}/broken` })
    await world.webhook({ endpoint: `${receiver.url}/healthy` })
    await db.database
      .knex('webhook_secrets')
      .where({ webhook_id: broken.id })
      .update({ sealed: Buffer.alloc(60) })
    await world.daemon(tls.caFile)
    for (let n = 0; n < 3; n++) await world.event()
    const requests = await receiver.arrived(3)
    expect(requests.every(({ path }) => path === '/healthy')).toBe(true)
    expect(await db.database.knex('delivery_queue').where({ webhook_id: broken.id })).toHaveLength(3)
  })
})
