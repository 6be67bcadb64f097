/**
 * A daemon that others take for dead while it works: it may take lanes after these were freed, under a token that is nobody's.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connectDatabase } from '../../db/connection.ts'
import { startDatabaseProxy } from '../../scripts/crash/database-proxy.ts'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { removeDaemon } from '../../src/deliveries/daemons-repository.ts'
import { newId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { takeLane } from '../support/take-lane.ts'
import { createTestTls } from '../support/tls.ts'

let db: TestDatabase
let tls: Awaited<ReturnType<typeof createTestTls>>
let world: DeliveryWorld
let receiver: HttpsReceiver
const cleanups: (() => unknown)[] = []
let release = () => {}
const held = new Promise<void>((resolve) => (release = resolve))

beforeAll(async () => {
  tls = await createTestTls()
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
  receiver = await startHttpsReceiver(tls, async ({ path }) => {
    if (path === '/held') await held
    return { status: 204 }
  })
})
afterAll(async () => {
  await world.close()
  for (const cleanup of cleanups) await cleanup()
  await receiver.close()
  await db.close()
  tls.remove()
})

/** @returns tokens of daemons, the oldest first */
const tokens = (): Promise<string[]> => db.database.knex('daemons').orderBy('started_at').pluck('token')

const ownerOf = async (webhookId: string): Promise<string | null> =>
  (await db.database.knex('lanes').where({ webhook_id: webhookId }).first('owner')).owner

test('a lane that was taken under the token of a buried daemon, or under none, is freed, and gets its events', async () => {
  const { knex, transaction } = db.database
  const [webhook, other] = [
    await world.webhook({ endpoint: receiver.url }),
    await world.webhook({ endpoint: receiver.url }),
  ]
  const daemon = await world.daemon(tls.caFile)
  const [before] = await tokens()
  const buried = newId(1)
  await knex('daemons').insert({ token: buried, beat: 7, hint_host: '127.0.0.1', hint_port: 1, started_at: new Date() })
  expect(await transaction((trx) => removeDaemon(trx, buried, 7))).toBe(0)
  expect(await takeLane(db.database, webhook.id, buried)).toBe(true)
  expect(await takeLane(db.database, other.id, '')).toBe(true)
  await world.event()
  await receiver.arrived(2)
  expect(await tokens()).toEqual([before])
  await daemon.stop()
  expect(await ownerOf(webhook.id)).toBeNull()
  expect(await ownerOf(other.id)).toBeNull()
})

test('a connection that is lost without a word, with a beat on it, makes nobody die', async () => {
  const proxy = await startDatabaseProxy(db.mysqlUrl)
  const database = connectDatabase(proxy.mysqlUrl)
  const other = await new DeliveryWorld(database).open()
  cleanups.push(
    () => other.close(),
    () => database.close(),
    () => proxy.close(),
  )
  await world.daemon(tls.caFile)
  await other.daemon(tls.caFile)
  const both = await tokens()
  expect(both).toHaveLength(2)
  const beatOf = async () => (await db.database.knex('daemons').where({ token: both[1] }).first('beat'))?.beat
  let lost = 0
  // Nothing more passes over that connection, and it stays open.
  proxy.arm({ statement: /update `daemons` set `beat`/, when: 'before' }, () => lost++)
  await expect.poll(() => lost, { timeout: 10_000 }).toBe(1)
  const lostAt = await beatOf()
  await expect.poll(beatOf, { timeout: 15_000, interval: 100 }).toBeGreaterThan(lostAt + 5)
  expect(await tokens()).toEqual(both)
})

test('a lane that is lost while requests of it are under way says so, and they are made again', async () => {
  const { id } = await world.webhook({ endpoint: `${receiver.url}/held`, events: ['bill.created'] })
  const daemon = await world.daemon(tls.caFile)
  const atHeld = () => receiver.requests.filter(({ path }) => path === '/held')
  const lost = () => world.logged.filter(({ event, webhookId }) => event === 'lane.lost' && webhookId === id)
  await world.event({ type: 'bill.created' })
  await expect.poll(atHeld, { timeout: 5000 }).toHaveLength(1)
  expect(lost()).toEqual([])
  await db.database.knex('lanes').where({ webhook_id: id }).update({ owner: null })
  await expect.poll(atHeld, { timeout: 10_000 }).toHaveLength(2)
  await expect.poll(lost).toEqual([expect.objectContaining({ level: 40, deliveries: 1 })])
  release()
  await world.settled()
  expect(atHeld()).toHaveLength(2)
  await daemon.stop()
})
