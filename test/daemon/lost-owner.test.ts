/**
 * A daemon that others take for dead while it works: it may take lanes after these were freed, under a token that is nobody's.
 */
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connectDatabase, type Database } from '../../db/connection.ts'
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

beforeAll(async () => {
  tls = await createTestTls()
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
  receiver = await startHttpsReceiver(tls)
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

test('a lane that was taken under the token of a buried daemon is freed, and gets its events', async () => {
  const { knex, transaction } = db.database
  const webhook = await world.webhook({ endpoint: receiver.url })
  const daemon = await world.daemon(tls.caFile)
  const [before] = await tokens()
  const buried = newId(1)
  await knex('daemons').insert({ token: buried, beat: 7, hint_host: '127.0.0.1', hint_port: 1, started_at: new Date() })
  expect(await transaction((trx) => removeDaemon(trx, buried, 7))).toBe(true)
  expect(await takeLane(db.database, webhook.id, buried)).toBe(true)
  await world.event()
  await receiver.arrived(1)
  expect(await tokens()).toEqual([before])
  await daemon.stop()
  expect(await ownerOf(webhook.id)).toBeNull()
})

test('a connection that is lost without a word, with a beat on it, makes nobody die', async () => {
  const lossy = await lossyDatabase('update `daemons` set `beat`')
  const other = await new DeliveryWorld(lossy.database).open()
  cleanups.unshift(() => other.close())
  await world.daemon(tls.caFile)
  await other.daemon(tls.caFile)
  const both = await tokens()
  expect(both).toHaveLength(2)
  const beatOf = async () => (await db.database.knex('daemons').where({ token: both[1] }).first('beat'))?.beat
  lossy.lose()
  await expect.poll(() => lossy.lost, { timeout: 10_000 }).toBe(1)
  const lostAt = await beatOf()
  await expect.poll(beatOf, { timeout: 15_000, interval: 100 }).toBeGreaterThan(lostAt + 5)
  expect(await tokens()).toEqual(both)
})

/** Once told so, it loses the connection on which these bytes come next: nothing goes either way, and it stays open. */
async function lossyDatabase(bytes: string): Promise<{ database: Database; lose: () => void; readonly lost: number }> {
  const url = new URL(db.mysqlUrl)
  const socketPath = url.searchParams.get('socketPath')
  const sockets = new Set<Socket>()
  let armed = false
  let lost = 0
  const server = createServer((client) => {
    const upstream = socketPath ? connect(socketPath) : connect(Number(url.port), url.hostname)
    let isLost = false
    client.on('data', (data) => {
      if (armed && data.includes(bytes)) {
        isLost = true
        armed = false
        lost += 1
      }
      if (!isLost) upstream.write(data)
    })
    upstream.on('data', (data) => !isLost && client.write(data))
    for (const [socket, peer] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(socket)
      socket.on('error', () => {})
      socket.on('close', () => peer.destroy())
    }
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  url.searchParams.delete('socketPath')
  url.host = `127.0.0.1:${(server.address() as AddressInfo).port}`
  const database = connectDatabase(url.toString())
  cleanups.push(
    () => database.close(),
    () => {
      server.close()
      for (const socket of sockets) socket.destroy()
    },
  )
  return { database, lose: () => void (armed = true), get lost() { return lost } } // prettier-ignore
}
