/**
 * What a fault becomes in the log.
 */
import { mkdtempSync, readFileSync, rmdirSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connectDatabase, type Database } from '../db/connection.ts'
import { causeFields, errorFields } from '../src/logger.ts'
import { openTestDatabase, type TestDatabase } from './support/database.ts'
import { freePort } from './support/free-port.ts'

const SECRET = 'a-password-of-the-database'

let db: TestDatabase
let folder: string
beforeAll(async () => {
  db = await openTestDatabase()
  folder = mkdtempSync(join(tmpdir(), 'lis-logger-'))
})
afterAll(async () => {
  await db.close()
  rmdirSync(folder)
})

/** By each of the ways in which a statement goes to the database. */
async function faultsOf(mysqlUrl: string): Promise<Error[]> {
  const database = connectDatabase(mysqlUrl)
  const ways: ((database: Database) => Promise<unknown>)[] = [
    ({ knex }) => knex.raw('SELECT 1'),
    ({ batch }) => batch.transaction((send) => send([{ sql: 'SELECT 1' }])),
    ({ transaction }) => transaction((trx) => trx.raw('SELECT 1')),
  ]
  const faults = []
  for (const way of ways)
    faults.push(
      await way(database).then(
        () => expect.unreachable(),
        (error: Error) => error,
      ),
    )
  await database.close()
  return faults
}

test('a fault of the connection to the database names the database, and nothing of its address', async () => {
  const port = await freePort()
  const socketPath = join(folder, 'mysql.sock')
  const unreached: [code: string, url: string][] = [
    ['ECONNREFUSED', `mysql://root:${SECRET}@127.0.0.1:${port}/lis`],
    ['ENOENT', `mysql://root:${SECRET}@localhost/lis?socketPath=${socketPath}`],
  ]
  for (const [code, url] of unreached) {
    for (const fault of await faultsOf(url)) {
      expect(errorFields(fault)).toMatchObject({ code, database: 'does not answer' })
      expect(causeFields(fault)).toMatchObject({ reason: code, database: 'does not answer' })
      expect(JSON.stringify(errorFields(fault))).not.toMatch(new RegExp(`${SECRET}|${port}|${folder}`))
    }
  }
})

test('a database that turns a user away answers: its own code says so', async () => {
  const url = new URL(db.mysqlUrl)
  url.username = 'nobody_of_this_name'
  url.password = SECRET
  for (const fault of await faultsOf(url.href)) {
    expect(errorFields(fault)).toMatchObject({ code: expect.stringMatching(/^ER_ACCESS_DENIED/), database: undefined })
  }
})

test('a statement that is too late, or for which no connection is free, says so of the database', async () => {
  const late = db.database.knex.raw('SELECT SLEEP(1)').timeout(10)
  expect(errorFields(await late.catch((error: Error) => error))).toMatchObject({ database: 'does not answer' })
})

test('the same codes of a file, or of another server, are not the database', async () => {
  const port = await freePort()
  const refused = await new Promise((resolve) => connect(port, '127.0.0.1').on('error', resolve))
  expect(errorFields(refused)).toMatchObject({ code: 'ECONNREFUSED', database: undefined })
  try {
    readFileSync(join(folder, 'no-file'))
  } catch (error) {
    expect(errorFields(error)).toMatchObject({ code: 'ENOENT', database: undefined })
  }
})

test('of a job store’s fault its name is logged, not its number', () => {
  const fault = Object.assign(new Error(SECRET), {
    name: 'MongoServerError',
    code: 18,
    codeName: 'AuthenticationFailed',
  })
  expect(errorFields(fault)).toMatchObject({ reason: 'MongoServerError', code: 'AuthenticationFailed' })
  expect(causeFields(fault)).toMatchObject({ reason: 'AuthenticationFailed' })
  expect(errorFields(Object.assign(new Error('x'), { code: 18 })).code).toBeUndefined()
})
