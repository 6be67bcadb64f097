/**
 * Connections that have gone silent for good, as after the loss of a firewall's state: found out together, not one after
 * another at the cost of a request each; and what only takes its time is left alone.
 */
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { COMMIT } from '../../db/batch.ts'
import { connectDatabase, isConnectionFault, type Database } from '../../db/connection.ts'
import { startDatabaseProxy, type DatabaseProxy } from '../../scripts/crash/database-proxy.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'

const EACH_POOL = 5
/** A second of suspicion, and two in which an unused connection has to answer. */
const FOUND_OUT_MS = 3000

let direct: TestDatabase
let proxy: DatabaseProxy
/** By way of the proxy. */
let database: Database

beforeAll(async () => {
  direct = await openTestDatabase()
})
afterAll(async () => {
  await direct.close()
})
beforeEach(async () => {
  proxy = await startDatabaseProxy(direct.mysqlUrl)
  database = connectDatabase(proxy.mysqlUrl, EACH_POOL)
  return async () => {
    await database.close()
    proxy.close()
  }
})

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))
const plain = async (sql = 'SELECT CONNECTION_ID() AS id') => (await database.knex.raw(sql))[0][0].id as number
const batch = async () => {
  const sql = 'SELECT CONNECTION_ID() AS id'
  const [rows] = await database.batch.transaction((send) => send([{ sql }, COMMIT]))
  return rows![0]!.id as number
}
/** As many at once as there are connections, so that each is used. */
const all = () =>
  Promise.all(
    Array.from({ length: EACH_POOL }, () => [plain('SELECT CONNECTION_ID() AS id, SLEEP(0.2)'), batch()]).flat(),
  )

test('all of them are given up with the first: every later statement of both pools is answered', async () => {
  const before = new Set(await all())
  expect(before.size).toBe(2 * EACH_POOL)
  proxy.abandon()
  const first = plain().catch((error) => error)
  await pause(FOUND_OUT_MS + 500)
  for (const id of await all()) expect(before).not.toContain(id)
  expect(isConnectionFault(await first)).toBe(true)
})

test('a statement that takes its time costs no connection', async () => {
  const before = new Set(await all())
  await Promise.all([plain('SELECT CONNECTION_ID() AS id, SLEEP(3.5)'), pause(FOUND_OUT_MS)])
  expect(new Set(await all())).toEqual(before)
})
