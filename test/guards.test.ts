/**
 * What four guards of the delivery are for, each shown by what would happen without it. `make controls` switches them off
 * one by one, in a copy, and sees these tests turn red.
 */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { createServer, type TLSSocket } from 'node:tls'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createWebhookClient } from '../daemon/webhook-client.ts'
import { startHttpsReceiver } from '../scripts/https-receiver.ts'
import { monotonicMs } from '../src/clock.ts'
import { publicEventId } from '../src/ids.ts'
import { createAddressPolicy } from '../src/webhooks/endpoint-address.ts'
import { claimWebhook, recordDeletion } from '../src/webhooks/webhooks-repository.ts'
import { openTestDatabase, type TestDatabase } from './support/database.ts'
import { DeliveryWorld } from './support/delivery-world.ts'
import { HandDaemon } from './support/hand-daemon.ts'
import { createTestTls } from './support/tls.ts'

/** More than all slots of the healthy in one daemon. */
const HANGING = 140
/** Hanging requests are given up after 10 s: whoever waits for their slots waits longer than this. */
const PROMPT_MS = 6000
/** What the kernel's buffers take besides the 16 KB that are read, and much less than what two seconds bring. */
const MOST_BYTES = 16_000_000

let db: TestDatabase
let world: DeliveryWorld
let tls: Awaited<ReturnType<typeof createTestTls>>

beforeAll(async () => {
  tls = await createTestTls()
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
})
afterAll(async () => {
  await world.close()
  await db.close()
  tls.remove()
})

/** A webhook with one event that a daemon by hand has taken and read. */
async function takenCopy(env: Record<string, string> = {}) {
  const webhook = await world.webhook({ endpoint: 'https://lims.example.in/hooks' })
  const event = await world.event()
  const daemon = new HandDaemon(world, env)
  await daemon.route()
  await daemon.take(webhook.id)
  return { webhook, daemon, copy: await daemon.copyOf(webhook.id, event.id) }
}

test('a daemon that has lost its lane writes nothing down, however late its answer comes', async () => {
  const { webhook, daemon, copy } = await takenCopy()
  const { knex } = db.database
  const successor = new HandDaemon(world)
  await knex('lanes').where({ webhook_id: webhook.id }).update({ owner: successor.token })
  const { lostWebhookIds } = await daemon.record([{ copy, ok: true }])
  expect([...lostWebhookIds]).toEqual([webhook.id])
  expect(await knex('attempts').where({ webhook_id: webhook.id })).toEqual([])
  await successor.record([{ copy, ok: true }])
  expect(await knex('attempts').where({ webhook_id: webhook.id }).pluck('n')).toEqual([1])
})

test('a daemon that knows its lane as a healthy one, and has lost it, writes nothing down', async () => {
  const { webhook, daemon, copy } = await takenCopy()
  const { knex } = db.database
  await daemon.record([{ copy, ok: true }])
  const event = await world.event()
  await daemon.route()
  const next = await daemon.copyOf(webhook.id, event.id)
  await knex('lanes')
    .where({ webhook_id: webhook.id })
    .update({ owner: new HandDaemon(world).token })
  const { lostWebhookIds } = await daemon.record([{ copy: next, ok: true }])
  expect([...lostWebhookIds]).toEqual([webhook.id])
  expect(await knex('attempts').where({ webhook_id: webhook.id }).pluck('event_id')).toEqual([copy.eventId])
  expect(await knex('lanes').where({ webhook_id: webhook.id }).pluck('last_seq')).toEqual([1])
})

test('a failed attempt that is recorded while its webhook is deleted finds it deleted', async () => {
  // A second of failing is enough to be deleted for it.
  const { webhook, daemon, copy } = await takenCopy({
    WARN_AFTER_SECONDS: '1',
    WARN_BY_CLOCK_SECONDS: '1',
    DELETE_AFTER_SECONDS: '1',
  })
  const { knex } = db.database
  await knex('webhooks')
    .where({ id: webhook.id })
    .update({
      first_failure_at: new Date(world.clock.nowMs() - 60_000),
      failed_attempts: 3,
      last_error: 'HTTP status 500',
    })
  const trx = await knex.transaction()
  await claimWebhook(trx, world.accountId, world.labId, webhook.id, 'whole_lab')
  await recordDeletion(trx, webhook.id, world.clock.now())
  const recorded = daemon.record([{ copy, ok: false }])
  await somebodyWaitsForALock()
  await trx.commit()
  await recorded
  expect(await knex('webhooks').where({ id: webhook.id }).first('state')).toEqual({ state: 'deleted' })
  expect(await knex('mails').where({ webhook_id: webhook.id })).toEqual([])
})

async function somebodyWaitsForALock(): Promise<void> {
  for (const untilMs = monotonicMs() + 5000; monotonicMs() < untilMs;) {
    const [rows] = await db.database.knex.raw(
      `SELECT 1 FROM information_schema.innodb_trx t JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id
       WHERE t.trx_state = 'LOCK WAIT' AND p.db = DATABASE()`,
    )
    if (rows.length > 0) return
  }
  throw new Error('nobody waits for a lock')
}

test('webhooks that hang, more than there are slots, hold up nobody else', async () => {
  let release = () => {}
  const held = new Promise<void>((resolve) => (release = resolve))
  const receiver = await startHttpsReceiver(tls, async ({ path }) => {
    if (path === '/hanging') await held
    return { status: 200 }
  })
  for (let n = 0; n < HANGING; n++) {
    await world.webhook({ endpoint: `${receiver.url}/hanging`, events: ['booking.created'] })
  }
  await world.webhook({ endpoint: `${receiver.url}/prompt`, events: ['bill.created'] })
  const daemon = await world.daemon(tls.caFile)
  await world.event({ type: 'booking.created' })
  // As many as fit: the slots of the healthy, where nobody is moved elsewhere.
  await receiver.arrived(128, 30_000)
  const event = await world.event({ type: 'bill.created' })
  const askedAtMs = monotonicMs()
  const isPrompt = () => receiver.requests.find(({ path }) => path === '/prompt')
  while (!isPrompt() && monotonicMs() - askedAtMs < PROMPT_MS) await new Promise((resolve) => setTimeout(resolve, 20))
  expect(isPrompt()?.headers['webhook-id']).toBe(publicEventId(event.id))
  release()
  await daemon.stop()
  await receiver.close()
}, 60_000)

test('an answer without an end is read no further than its first 16 KB', async () => {
  const block = Buffer.alloc(65_536, 'x')
  const server = createServer({ cert: readFileSync(tls.certificateFile), key: readFileSync(tls.keyFile) })
  const closed = new Promise<number>((resolve) => {
    server.on('secureConnection', (socket: TLSSocket) => {
      const flood = () => {
        while (!socket.destroyed && socket.write(block));
      }
      socket.on('error', () => {})
      socket.on('drain', flood)
      socket.on('close', () => resolve(socket.bytesWritten))
      socket.once('data', () => {
        socket.write('HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n')
        flood()
      })
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const client = createWebhookClient({
    policy: createAddressPolicy({ allow: ['127.0.0.0/8', '::1/128'] }),
    caFiles: [tls.caFile],
  })
  const endpoint = `https://127.0.0.1:${(server.address() as AddressInfo).port}/`
  const outcome = await client.post({ accountId: 'any', endpoint, headers: {}, body: Buffer.from('{}') })
  expect(outcome).toMatchObject({ ok: true, status: 200 })
  expect(outcome.answer).toHaveLength(1024)
  expect(await closed).toBeLessThan(MOST_BYTES)
  await client.close()
  server.close()
})
