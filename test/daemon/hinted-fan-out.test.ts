/** A daemon that is told which event waits, over the wire. */
import { createSocket } from 'node:dgram'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { startHttpsReceiver, type Answer, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { COMMIT, sendThrough, type BatchResult, type Send, type Statement } from '../../db/batch.ts'
import type { Database } from '../../db/connection.ts'
import type { RunningDaemon } from '../../daemon/daemon.ts'
import { hintDatagram } from '../../src/events/daemon-hints.ts'
import { recordEventStatements } from '../../src/events/events-repository.ts'
import { newId, publicEventId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { StatementRecorder } from '../support/statement-recorder.ts'
import { createTestTls } from '../support/tls.ts'

/** What becomes of the last round trip of a hinted fan-out, with its COMMIT. */
let onCommit: (send: Send, last: Statement[]) => Promise<BatchResult[]> = (send, last) => send(last)

/** The statements that lock what is to be fanned out. */
const fanOutsBegun: string[] = []

let answer: () => Answer | Promise<Answer>

let db: TestDatabase
let tls: Awaited<ReturnType<typeof createTestTls>>
let world: DeliveryWorld
let receiver: HttpsReceiver
let daemon: RunningDaemon
let labId: string
let webhookId: string

beforeAll(async () => {
  tls = await createTestTls()
  db = await openTestDatabase()
  world = await new DeliveryWorld(withCommits(db.database)).open()
  receiver = await startHttpsReceiver(tls, () => answer())
  daemon = await world.daemon(tls.caFile)
})
afterAll(async () => {
  await world.close()
  await receiver.close()
  await db.close()
  tls.remove()
})
beforeEach(async () => {
  onCommit = (send, last) => send(last)
  answer = () => ({ status: 204 })
  labId = newId(1)
  webhookId = (await world.webhook({ endpoint: receiver.url, labId })).id
})

function withCommits(database: Database): Database {
  const transaction: Database['batch']['transaction'] = (work) =>
    database.batch.transaction((send) => {
      let isHinted = false
      return work((statements) => {
        isHinted ||= statements.some(({ sql }) => sql.includes('INTO @event'))
        fanOutsBegun.push(...statements.map(({ sql }) => sql).filter((sql) => sql.includes('FROM unrouted_events u')))
        return isHinted && statements.at(-1) === COMMIT ? onCommit(send, statements) : send(statements)
      })
    })
  return { ...database, batch: { ...database.batch, transaction } }
}

async function hint(...datagrams: Buffer[]): Promise<void> {
  const socket = createSocket('udp4')
  for (const datagram of datagrams) {
    await new Promise((resolve) => socket.send(datagram, daemon.port, '127.0.0.1', resolve))
  }
  socket.close()
}

const foretold = (eventId: string) => hintDatagram({ kind: 'committing', eventId })
const named = (eventId: string) => hintDatagram({ kind: 'events', eventId })
const receivedOf = (eventId: string) =>
  receiver.requests.filter(({ headers }) => headers['webhook-id'] === publicEventId(eventId)).length

/** Its only delivery is on record, and its lane has been given back or is run. */
async function deliveredOnce(eventId: string): Promise<void> {
  await expect.poll(() => receivedOf(eventId), { timeout: 10_000 }).toBe(1)
  await world.settled()
  const attempts = await db.database.knex('attempts').where({ event_id: eventId }).pluck('webhook_id')
  expect(attempts).toEqual([webhookId])
  expect(receivedOf(eventId)).toBe(1)
}

test('fans it out by its name, and takes the lane along', async () => {
  const recorder = new StatementRecorder()
  try {
    // The daemon may look by itself just before it is told.
    for (let n = 0; n < 5; n++) {
      const { id } = await world.event({ labId })
      await hint(named(id))
      await deliveredOnce(id)
    }
    expect(recorder.statements.some((sql) => /UPDATE delivery_queue q .*owner = IF/s.test(sql))).toBe(true)
    expect(world.logged.findLast(({ event }) => event === 'event.routed')).toMatchObject({ events: 1, lanes: 1 })
  } finally {
    recorder.stop()
  }
})

test('delivers once what is named twice, and several that are named together', async () => {
  const events = await Promise.all(Array.from({ length: 6 }, () => world.event({ labId })))
  await hint(...events.flatMap(({ id }) => [named(id), named(id)]))
  for (const { id } of events) await deliveredOnce(id)
})

test('goes on after names of nothing, of a message, of what was routed, and after what is no name', async () => {
  const { id: before } = await world.event({ labId })
  await hint(named(before))
  await deliveredOnce(before)
  const message = await world.message({ labId })
  for (const datagram of [
    named(newId(7)),
    named(message.id),
    named(before),
    Buffer.from('\0 what'),
    Buffer.alloc(9000, 7),
  ]) {
    await hint(datagram)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
  const { id } = await world.event({ labId })
  await hint(named(newId(8)))
  await deliveredOnce(id)
  expect(receivedOf(before)).toBe(1)
  const states = await db.database.knex('messages').where({ event_id: message.id }).pluck('state')
  expect(states).toEqual(['normal'])
})

test('sends what it has read while its COMMIT is under way, once, also where that takes longer than lanes wait to look at their rows', async () => {
  let letGo = () => {}
  const held = new Promise<void>((resolve) => (letGo = resolve))
  onCommit = async (send, last) => {
    await held
    return send(last)
  }
  // Until whoever finds the lane without knowing it would have sent it again.
  let respond = () => {}
  const answered = new Promise<void>((resolve) => (respond = resolve))
  answer = () => answered.then(() => ({ status: 204 }))
  const { id } = await world.event({ labId })
  await hint(named(id))
  await expect.poll(() => receivedOf(id), { timeout: 10_000 }).toBe(1)
  const { knex } = db.database
  expect(await knex('unrouted_events').where({ event_id: id })).toHaveLength(1)
  expect(await knex('lanes').where({ webhook_id: webhookId }).first('owner')).toEqual({ owner: null })
  await new Promise((resolve) => setTimeout(resolve, 700))
  letGo()
  await new Promise((resolve) => setTimeout(resolve, 700))
  respond()
  await deliveredOnce(id)
  await expect.poll(() => knex('lanes').where({ webhook_id: webhookId }).first('owner'), { timeout: 5000 }).toEqual({ owner: null }) // prettier-ignore
  expect(receivedOf(id)).toBe(1)
})

test.each([
  ['does not come through', (send: Send, _: Statement[]) => send([{ sql: 'ROLLBACK' }]), [1, 2]],
  ['comes through, which nobody tells it', (send: Send, last: Statement[]) => send(last), [1]],
])('whose COMMIT %s delivers the event all the same, with one attempt on record', async (_, end, received) => {
  let failed = 0
  onCommit = async (send, last) => {
    await end(send, last)
    failed += 1
    onCommit = (again, lastAgain) => again(lastAgain)
    throw Object.assign(new Error('Connection lost'), { code: 'PROTOCOL_CONNECTION_LOST', fatal: true })
  }
  const { id } = await world.event({ labId })
  await hint(named(id))
  const { knex } = db.database
  const ends = async () => (await knex('deliveries').where({ event_id: id }).first('status'))?.status
  await expect.poll(ends, { timeout: 10_000 }).toBe('delivered')
  await world.settled()
  expect(failed).toBe(1)
  expect(await knex('attempts').where({ event_id: id })).toHaveLength(1)
  expect(received).toContain(receivedOf(id))
  expect(await knex('unrouted_events').where({ event_id: id })).toEqual([])
  await expect.poll(() => knex('lanes').where({ webhook_id: webhookId }).first('owner'), { timeout: 5000 }).toEqual({ owner: null }) // prettier-ignore
})

test('an event of which it was told before its end is fanned out, and sent when somebody says that it is committed', async () => {
  let letGo = () => {}
  const held = new Promise<void>((resolve) => (letGo = resolve))
  let isReached = false
  onCommit = async (send, last) => {
    isReached = true
    await held
    return send(last)
  }
  try {
    let id = ''
    // The daemon may look by itself just before it is told.
    for (let n = 0; n < 5 && !isReached; n++) {
      id = (await world.event({ labId })).id
      await hint(foretold(id))
      await expect.poll(() => isReached || receivedOf(id) > 0, { timeout: 5000 }).toBe(true)
    }
    expect(isReached).toBe(true)
    await new Promise((resolve) => setTimeout(resolve, 300))
    // Its fan-out has read it, and nobody has said that it is on disk.
    expect(receivedOf(id)).toBe(0)
    letGo()
    await deliveredOnce(id)
  } finally {
    letGo()
  }

  let isSentWhileHeld = false
  for (let n = 0; n < 5 && !isSentWhileHeld; n++) {
    // A lane that still runs is told behind the COMMIT.
    labId = newId(2)
    webhookId = (await world.webhook({ endpoint: receiver.url, labId })).id
    const event = await world.event({ labId })
    onCommit = async (send, last) => {
      await expect.poll(() => receivedOf(event.id), { timeout: 5000 }).toBe(1)
      isSentWhileHeld = true
      return send(last)
    }
    await hint(foretold(event.id), named(event.id))
    await deliveredOnce(event.id)
  }
  expect(isSentWhileHeld).toBe(true)
})

/** An event whose transaction is under way: that it waits is written, and the rest is when it is committed. */
async function begunEvent(): Promise<{ id: string; end: (how: 'commit' | 'rollback') => Promise<void> }> {
  const trx = await db.database.knex.transaction()
  const id = newId(world.clock.nowMs())
  const nobody = { corporateId: null, doctorId: null, hospitalId: null }
  const body = Buffer.from(JSON.stringify({ id: publicEventId(id) }))
  const event = { id, accountId: world.accountId, labId, type: 'lead.created' as const, subjectId: id, ...nobody, body }
  const [waiting, ...rest] = recordEventStatements([event])
  const send = sendThrough(trx)
  await send([waiting])
  const end = async (how: 'commit' | 'rollback') => {
    if (how === 'commit') await send(rest)
    await trx[how]()
  }
  return { id, end }
}

test('one whose transaction has not ended is waited for, and sent when that has and somebody says so', async () => {
  let isForeseen = false
  // The daemon may look by itself just before it is told.
  for (let n = 0; n < 5 && !isForeseen; n++) {
    const { id, end } = await begunEvent()
    fanOutsBegun.length = 0
    await hint(foretold(id))
    await new Promise((resolve) => setTimeout(resolve, 300))
    expect(receivedOf(id)).toBe(0)
    const isWaitedFor = fanOutsBegun.length === 1
    await end('commit')
    await hint(named(id))
    await deliveredOnce(id)
    // Nobody has asked for it again, by its name or by looking.
    isForeseen = isWaitedFor && fanOutsBegun.length === 1
  }
  expect(isForeseen).toBe(true)
})

test.each([
  ['fails', 200, 'rollback'],
  ['takes longer than locks are waited for', 1500, 'commit'],
] as const)('one whose transaction %s holds up others no longer than that', async (_, heldMs, how) => {
  const { id, end } = await begunEvent()
  await hint(foretold(id))
  await new Promise((resolve) => setTimeout(resolve, heldMs))
  const { id: other } = await world.event({ labId })
  if (how === 'commit') {
    await deliveredOnce(other)
    expect(receivedOf(id)).toBe(0)
  }
  await end(how)
  if (how === 'commit') await hint(named(id))
  await deliveredOnce(how === 'commit' ? id : other)
  expect(receivedOf(id)).toBe(how === 'commit' ? 1 : 0)
})

test('one that is foretold too soon, or by anyone, is delivered when it is committed', async () => {
  for (let n = 0; n < 10; n++) {
    await hint(foretold(newId(n)))
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  const { id } = await world.event({ labId })
  await hint(foretold(id), named(id))
  await deliveredOnce(id)
})
