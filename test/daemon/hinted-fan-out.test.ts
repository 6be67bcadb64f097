/** A daemon that is told which event waits, over the wire. */
import { createSocket } from 'node:dgram'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import type { RunningDaemon } from '../../daemon/daemon.ts'
import { hintDatagram } from '../../src/events/daemon-hints.ts'
import { newId, publicEventId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { StatementRecorder } from '../support/statement-recorder.ts'
import { createTestTls } from '../support/tls.ts'

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
  world = await new DeliveryWorld(db.database).open()
  receiver = await startHttpsReceiver(tls, () => ({ status: 204 }))
  daemon = await world.daemon(tls.caFile)
})
afterAll(async () => {
  await world.close()
  await receiver.close()
  await db.close()
  tls.remove()
})
beforeEach(async () => {
  labId = newId(1)
  webhookId = (await world.webhook({ endpoint: receiver.url, labId })).id
})

async function hint(...datagrams: Buffer[]): Promise<void> {
  const socket = createSocket('udp4')
  for (const datagram of datagrams) {
    await new Promise((resolve) => socket.send(datagram, daemon.port, '127.0.0.1', resolve))
  }
  socket.close()
}

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
