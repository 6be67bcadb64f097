import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { sendMessages } from '../../daemon/jobs/send-messages.ts'
import { newId, publicEventId } from '../../src/ids.ts'
import { createLogger } from '../../src/logger.ts'
import { createMessageGateway, type MessageGateway } from '../../src/messages/message-gateway.ts'
import { messageRetrySeconds } from '../../src/messages/message-rules.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { TestGateway } from '../support/gateway.ts'
import { HandDaemon } from '../support/hand-daemon.ts'
import { TestClock } from '../support/test-clock.ts'

const log = createLogger('daemon', 'silent')
const DEADLINE_MS = 500

let db: TestDatabase
let world: DeliveryWorld
let gateway: TestGateway
let clock: TestClock

beforeAll(async () => {
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
})
afterAll(async () => {
  await world.close()
  await db.close()
})
beforeEach(async () => {
  gateway = await new TestGateway().start()
  clock = new TestClock(world.clock.now().toISOString())
})
afterEach(async () => {
  await gateway.close()
  await db.database.knex('messages').delete()
})

const rowOf = (eventId: string) => db.database.knex('messages').where({ event_id: eventId }).first()

/** Messages that no webhook gets, recorded and fanned out. */
async function normalMessages(count: number): Promise<string[]> {
  const ids: string[] = []
  while (ids.length < count) {
    const some = await Promise.all(Array.from({ length: Math.min(20, count - ids.length) }, () => world.message()))
    ids.push(...some.map(({ id }) => id))
  }
  const daemon = new HandDaemon(world)
  while ((await daemon.route()).events > 0);
  // Later than what the fan-out has written by the database's clock, of which our view may have been put right since.
  clock.set(new Date(world.clock.nowMs() + 1000).toISOString())
  return ids.sort()
}

function sending(to: MessageGateway = httpGateway()) {
  return sendMessages({ database: db.database, clock, log, gateway: to })
}

function httpGateway(): MessageGateway {
  return createMessageGateway({ url: gateway.url, dataDir: '/nonexistent', now: () => clock.now(), deadlineMs: DEADLINE_MS })
} // prettier-ignore

test('a message whose row somebody else holds when the gateway has taken it is marked as sent, and is not sent again', async () => {
  const [eventId] = await normalMessages(1)
  let taken = 0
  const held: Promise<void>[] = []
  // Longer than a statement waits for a lock, shorter than two do.
  const HELD_MS = 1500
  const holding: MessageGateway = {
    async send() {
      taken += 1
      const trx = await db.database.knex.transaction()
      await trx('messages').where({ event_id: eventId }).forUpdate().first('event_id')
      const release = async () => void (await trx.rollback())
      held.push(new Promise((resolve) => setTimeout(resolve, HELD_MS)).then(release))
    },
  }
  const [outcome] = await Promise.allSettled([sending(holding).run()])
  await Promise.all(held)
  expect(outcome!.status).toBe('fulfilled')
  expect(await rowOf(eventId!)).toMatchObject({ due_at: null, sent_at: expect.any(Date) })
  expect(taken).toBe(1)
})

test('a message whose claim took so long that another may claim it while the gateway answers is left to its next try', async () => {
  const [eventId] = await normalMessages(1)
  const { knex } = db.database
  const slow = ({ sql }: { sql: string }) =>
    void (sql.startsWith('update `messages` set `due_at`') && clock.advance(4500))
  knex.on('query', slow)
  await sending().run()
  knex.off('query', slow)
  expect(gateway.calls).toEqual([])
  clock.advance(6000)
  await sending().run()
  expect(gateway.calls).toHaveLength(1)
  expect(await rowOf(eventId!)).toMatchObject({ due_at: null, tries: 2 })
})

test('a message of a sandbox account never comes to the gateway, and one of a live account behind it does', async () => {
  const [kept, sent] = await normalMessages(2)
  const { knex } = db.database
  const sandboxId = newId(0)
  const account = await knex('accounts').where({ id: world.accountId }).first()
  await knex('accounts').insert({ ...account, id: sandboxId, sandbox: true })
  await knex('messages').where({ event_id: kept }).update({ account_id: sandboxId })
  await sending().run()
  expect(gateway.calls.map(({ key }) => key)).toEqual([publicEventId(sent!)])
  expect(await rowOf(kept!)).toMatchObject({ state: 'normal', due_at: null, sent_at: expect.any(Date) })
  await knex('accounts').where({ id: sandboxId }).delete()
})

test('a message is posted to the gateway as JSON, with its event’s id as Idempotency-Key, and is then done', async () => {
  const [eventId] = await normalMessages(1)
  await sending().run()
  const id = publicEventId(eventId!)
  expect(gateway.calls).toEqual([
    {
      key: id,
      status: 200,
      body: {
        id,
        to: '9876543210',
        name: 'Asha',
        kind: 'booking',
        template: 'visit_reminder',
        text: 'Your visit is on Monday.',
        variables: { day: 'Monday' },
        attachmentUrl: null,
      },
    },
  ])
  expect(await rowOf(eventId!)).toMatchObject({ state: 'normal', due_at: null, tries: 1 })
  expect((await rowOf(eventId!)).sent_at).toEqual(clock.now())
  await sending().run()
  expect(gateway.calls).toHaveLength(1)
})

test('a message that is not taken is sent again later and later, under the same Idempotency-Key, until it is', async () => {
  const [eventId] = await normalMessages(1)
  const statuses = [503, 302, 500, 201]
  gateway.answer = () => statuses.shift()!
  const { run } = sending()
  for (let tries = 0; tries < 4; tries++) {
    await run()
    expect(gateway.calls).toHaveLength(tries + 1)
    await run()
    expect(gateway.calls).toHaveLength(tries + 1)
    clock.advance(messageRetrySeconds(tries) * 1000)
  }
  await run()
  expect(gateway.calls.map(({ status }) => status)).toEqual([503, 302, 500, 201])
  expect(new Set(gateway.calls.map(({ key }) => key))).toEqual(new Set([publicEventId(eventId!)]))
  expect(await rowOf(eventId!)).toMatchObject({ due_at: null, tries: 4 })
})

test('the waits grow from 10 s to 15 min', () => {
  expect([0, 1, 2, 5, 6, 7, 100].map(messageRetrySeconds)).toEqual([10, 20, 40, 320, 640, 900, 900])
})

test('a crash between the gateway’s yes and the mark asks the gateway again with the same key', async () => {
  const [eventId] = await normalMessages(1)
  await sending().run()
  await db.database.knex('messages').where({ event_id: eventId }).update({ due_at: clock.now(), sent_at: null })
  await sending().run()
  expect(gateway.taken).toEqual([publicEventId(eventId!), publicEventId(eventId!)])
})

test('all that wait are sent in one run, several at a time, each once, by three daemons at once', async () => {
  const ids = await normalMessages(300)
  // As slow as a gateway is.
  gateway.answer = () => new Promise((resolve) => setTimeout(() => resolve(200), 5))
  await Promise.all([sending().run(), sending().run(), sending().run()])
  expect([...gateway.taken].sort()).toEqual(ids.map(publicEventId))
  expect(gateway.mostOpen).toBeGreaterThan(1)
  expect(gateway.mostOpen).toBeLessThanOrEqual(3 * 8)
})

test('a gateway that takes nothing is asked once in a run, and everything goes out when it is back', async () => {
  const ids = await normalMessages(40)
  gateway.answer = () => 503
  const { run } = sending()
  for (let n = 0; n < 3; n++) await run()
  expect(gateway.calls).toHaveLength(3)
  gateway.answer = () => 200
  await run()
  expect(gateway.taken).toHaveLength(ids.length - 3)
  clock.advance(10_000)
  await run()
  expect([...gateway.taken].sort()).toEqual(ids.map(publicEventId))
})

test('a gateway that goes down in a run is asked no more than the calls that are open then', async () => {
  await normalMessages(60)
  gateway.answer = () => (gateway.calls.length < 5 ? 200 : 503)
  await sending().run()
  expect(gateway.calls.length).toBeLessThanOrEqual(5 + 8)
})

test('a gateway that never answers is asked for no more in a run than are open at a time; one that is not there for one', async () => {
  await normalMessages(20)
  gateway.answer = () => new Promise(() => {})
  const messages = sending()
  const tries = async () => Number((await db.database.knex('messages').sum({ tries: 'tries' }))[0]!.tries)
  await messages.run()
  const silent = await tries()
  expect(silent).toBeLessThanOrEqual(9)
  await gateway.close()
  await messages.run()
  expect(await tries()).toBe(silent + 1)
  gateway = await new TestGateway().start()
})

test('a message that the gateway is slow with holds up no other, neither of its own run nor of a later one', async () => {
  const [slow] = await normalMessages(1)
  const held = Promise.withResolvers<number>()
  gateway.answer = ({ key }) => (key === publicEventId(slow!) ? held.promise : 200)
  const messages = sending(createMessageGateway({ url: gateway.url, dataDir: '/nonexistent', now: () => clock.now() }))
  const run = messages.run()
  await expect.poll(() => gateway.calls.length + gateway.mostOpen).toBeGreaterThan(0)
  const ids = await normalMessages(20)
  await messages.begin()
  await expect.poll(() => gateway.taken.length, { timeout: 4000 }).toBe(20)
  expect([...gateway.taken].sort()).toEqual(ids.map(publicEventId))
  held.resolve(200)
  await run
  expect(gateway.taken).toContain(publicEventId(slow!))
})

test('what a gateway says behind its yes without end is not waited for', async () => {
  const [eventId] = await normalMessages(1)
  const server = createServer((_, response) => {
    response.writeHead(200)
    const timer = setInterval(() => response.write('.'), 50)
    response.on('close', () => clearInterval(timer))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
  const began = performance.now()
  await sending(createMessageGateway({ url, dataDir: '/nonexistent', now: () => clock.now() })).run()
  expect(performance.now() - began).toBeLessThan(4000)
  expect(await rowOf(eventId!)).toMatchObject({ tries: 1, sent_at: clock.now() })
  server.close()
})

test.each([400, 500])('a message that the gateway refuses with %i holds up no other', async (status) => {
  const ids = await normalMessages(30)
  const refused = publicEventId(ids[0]!)
  gateway.answer = ({ key }) => (key === refused ? status : 200)
  await sending().run()
  expect([...gateway.taken].sort()).toEqual(ids.slice(1).map(publicEventId))
  expect(await rowOf(ids[0]!)).toMatchObject({ state: 'normal', tries: 1, sent_at: null })
})

test('what has failed before goes behind what has not, also where it is due earlier', async () => {
  const bad = await normalMessages(5)
  gateway.answer = ({ key }) => (bad.map(publicEventId).includes(key) ? 503 : 200)
  const { run } = sending()
  for (const _ of bad) await run()
  const good = await normalMessages(3)
  clock.advance(15_000)
  await db.database.knex('messages').whereIn('event_id', good).update({ due_at: clock.now() })
  await run()
  expect(gateway.taken.toSorted()).toEqual(good.map(publicEventId))
})

test('a call while a run is under way sends what came after the run had looked', async () => {
  await normalMessages(1)
  const { run } = sending()
  let late: string[] = []
  gateway.answer = async () => {
    if (late.length === 0) late = await normalMessages(1)
    return 200
  }
  const first = run()
  await expect.poll(() => late.length, { timeout: 10_000 }).toBe(1)
  await Promise.all([first, run(), run()])
  expect(gateway.taken).toContain(publicEventId(late[0]!))
  expect(gateway.taken).toHaveLength(2)
})

test('a stop starts nothing more and waits for what is under way', async () => {
  const ids = await normalMessages(60)
  let open = () => {}
  const held = new Promise<void>((resolve) => (open = resolve))
  gateway.answer = async ({ key }) => {
    if (key !== publicEventId(ids[0]!)) await held
    return 200
  }
  const messages = sending(createMessageGateway({ url: gateway.url, dataDir: '/nonexistent', now: () => clock.now() }))
  const run = messages.run()
  await expect.poll(() => gateway.mostOpen, { timeout: 10_000 }).toBe(8)
  const stopped = messages.stop()
  open()
  await stopped
  await run
  const sent = gateway.taken.length
  expect(sent).toBeLessThanOrEqual(9)
  await messages.run()
  expect(gateway.taken).toHaveLength(sent)
})

test('without a gateway a message is a line in a file that only its owner reads', async () => {
  const dataDir = mkdtempSync(join(tmpdir(), 'lis-messages-'))
  try {
    const ids = await normalMessages(2)
    await sending(createMessageGateway({ url: undefined, dataDir, now: () => clock.now() })).run()
    const file = join(dataDir, 'outbox', 'messages.ndjson')
    const lines = readFileSync(file, 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(lines.map(({ id }) => id).sort()).toEqual(ids.map(publicEventId))
    expect(lines[0]).toMatchObject({
      at: clock.now().toISOString(),
      to: '9876543210',
      text: 'Your visit is on Monday.',
    })
    expect(statSync(file).mode & 0o777).toBe(0o600)
  } finally {
    rmSync(dataDir, { recursive: true })
  }
})
