/**
 * Every delivery of a run, as two libraries of other people see it: each verifies it with every secret that was current at
 * the attempt, and neither takes one with a bit changed. SIGNATURE_RUNS sets how many events there are; 100,000 are a full run.
 */
import { createHash } from 'node:crypto'
import { Webhook as StandardWebhook } from 'standardwebhooks'
import { Webhook as SvixWebhook } from 'svix'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startHttpsReceiver, type HttpsReceiver, type ReceivedRequest } from '../../scripts/https-receiver.ts'
import { publicEventId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { createTestTls } from '../support/tls.ts'

/** Half of them before the secret is rotated. */
const EVENTS = Number(process.env.SIGNATURE_RUNS ?? 120)
/** So that a full run does not commit one event after another. */
const AT_ONCE = 50
const GRACE_SECONDS = 24 * 3600
const LIBRARIES = [StandardWebhook, SvixWebhook]

let db: TestDatabase
let world: DeliveryWorld
let tls: Awaited<ReturnType<typeof createTestTls>>
let receiver: HttpsReceiver
/** The first attempt of some of the events is refused. */
const refused = new Set<string>()

beforeAll(async () => {
  tls = await createTestTls()
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
  receiver = await startHttpsReceiver(tls, ({ headers }) => {
    const id = String(headers['webhook-id'])
    if (!isRefusedOnce(id) || refused.has(id)) return { status: 204 }
    refused.add(id)
    return { status: 500 }
  })
})
afterAll(async () => {
  await world.close()
  await receiver.close()
  await db.close()
  tls.remove()
})

function isRefusedOnce(eventId: string): boolean {
  return createHash('sha256').update(eventId).digest()[0]! < 16
}

/** A body of its own for each: of many lengths, with bytes beyond ASCII. */
async function emit(count: number): Promise<void> {
  for (let sent = 0; sent < count; sent += AT_ONCE) {
    const size = Math.min(AT_ONCE, count - sent)
    await Promise.all(
      Array.from({ length: size }, (_, n) =>
        world.event({
          body: Buffer.from(JSON.stringify({ name: `Zoë 北京 ${'x'.repeat(((sent + n) * 37) % 2000)}` })),
        }),
      ),
    )
  }
}

/** Until each event has its 2xx: as many requests as events, and one more for each that is refused once. */
async function delivered(events: number): Promise<ReceivedRequest[]> {
  const timeoutMs = 30_000 + events * 20
  await receiver.arrived(events, timeoutMs)
  await expect.poll(() => receiver.requests.length - refused.size, { timeout: timeoutMs }).toBe(events)
  await world.settled(timeoutMs)
  return receiver.requests
}

function verdicts(secret: string, { body, headers }: Pick<ReceivedRequest, 'body' | 'headers'>): boolean[] {
  return LIBRARIES.map((Library) => {
    try {
      new Library(secret).verify(body, headers as Record<string, string>)
      return true
    } catch {
      return false
    }
  })
}

/** The request with one bit changed: of its body, id, time, and of each of its signatures. */
function* spoiled(request: ReceivedRequest, bit: number): Generator<Pick<ReceivedRequest, 'body' | 'headers'>> {
  const { body, headers } = request
  yield { headers, body: flipped(body, bit) }
  for (const name of ['webhook-id', 'webhook-timestamp']) {
    const text = Buffer.from(String(headers[name]), 'latin1')
    // The lowest bit of a byte: a header stays one.
    yield { body, headers: { ...headers, [name]: flipped(text, (bit % text.length) * 8).toString('latin1') } }
  }
  const signatures = String(headers['webhook-signature']).split(' ')
  const changed = signatures.map(
    (text) => `v1,${flipped(Buffer.from(text.slice(3), 'base64'), bit).toString('base64')}`,
  )
  yield { body, headers: { ...headers, 'webhook-signature': changed.join(' ') } }
}

function flipped(bytes: Buffer, bit: number): Buffer {
  const changed = Buffer.from(bytes)
  const at = bit % (changed.length * 8)
  changed[at >> 3]! ^= 1 << (at & 7)
  return changed
}

test('two foreign libraries verify every delivery, during a rotation under both secrets, and none with a bit changed', async () => {
  const webhook = await world.webhook({ endpoint: receiver.url })
  await world.daemon(tls.caFile, { RETRY_SCHEDULE: '0.2' })
  const half = Math.ceil(EVENTS / 2)
  await emit(half)
  const before = (await delivered(half)).length
  const { secret } = await world.rotateSecret(webhook.id, GRACE_SECONDS)
  await emit(EVENTS - half)
  const requests = await delivered(EVENTS)

  const wrong = { unverified: 0, underTheWrongSecret: 0, taken: 0, signatures: 0 }
  const foreign = await world.webhook({ endpoint: receiver.url, events: ['bill.created'] })
  for (const [index, request] of requests.entries()) {
    const secrets = index < before ? [webhook.secret] : [webhook.secret, secret]
    const others = index < before ? [secret, foreign.secret] : [foreign.secret]
    if (String(request.headers['webhook-signature']).split(' ').length !== secrets.length) wrong.signatures++
    for (const known of secrets) {
      wrong.unverified += verdicts(known, request).filter((good) => !good).length
      for (const copy of spoiled(request, index * 7919)) wrong.taken += verdicts(known, copy).filter(Boolean).length
    }
    for (const other of others) wrong.underTheWrongSecret += verdicts(other, request).filter(Boolean).length
  }
  expect(wrong).toEqual({ unverified: 0, underTheWrongSecret: 0, taken: 0, signatures: 0 })
  console.log(`signatures: ${requests.length} deliveries verified by 2 libraries, ${refused.size} of them sent twice`)
}, 60_000 + EVENTS * 40) // prettier-ignore

test('each attempt carries the time of its own start, and a retry the id of the first', async () => {
  const rows = await db.database.knex('attempts').select('event_id', 'started_at')
  const started = new Map<string, number[]>()
  for (const { event_id, started_at } of rows) {
    const id = publicEventId(event_id)
    started.set(
      id,
      [...(started.get(id) ?? []), Math.floor(started_at.getTime() / 1000)].sort((a, b) => a - b),
    )
  }
  const sent = new Map<string, number[]>()
  for (const { headers } of receiver.requests) {
    const id = String(headers['webhook-id'])
    sent.set(
      id,
      [...(sent.get(id) ?? []), Number(headers['webhook-timestamp'])].sort((a, b) => a - b),
    )
  }
  expect(sent).toEqual(started)
  expect(refused.size).toBeGreaterThan(0)
  for (const id of refused) expect(sent.get(id)).toHaveLength(2)
})

test('a delivery has no header but these, and none says anything that a caller has written', async () => {
  for (const { headers } of receiver.requests) {
    const { host, connection, 'content-length': length, ...ours } = headers
    expect([host, Number(length) > 0]).toEqual([`127.0.0.1:${receiver.port}`, true])
    expect(['keep-alive', 'close', undefined]).toContain(connection)
    expect(ours).toEqual({
      'content-type': 'application/json',
      'user-agent': expect.stringMatching(/^LaboratoryIntegrationService\/[0-9a-z.-]+$/),
      'webhook-id': expect.stringMatching(/^evt_[0-9a-z]{26}$/),
      'webhook-timestamp': expect.stringMatching(/^\d{10}$/),
      'webhook-signature': expect.stringMatching(/^v1,[A-Za-z0-9+/]{43}=( v1,[A-Za-z0-9+/]{43}=)?$/),
    })
  }
})
