/**
 * The doctor whose database fails while it looks.
 */
import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Knex } from 'knex'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'

const SCRIPT = join(import.meta.dirname, '..', '..', 'scripts', 'doctor.ts')

let database: TestDatabase
let folder: string
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'lis-doctor-'))
  database = await openTestDatabase()
})
afterAll(async () => {
  rmSync(folder, { recursive: true, force: true })
  await database.close()
})

interface Ended {
  status: number | string | null | undefined
  errors: string
}

function runDoctor(): Promise<Ended> {
  const env = { ...process.env, MYSQL_URL: database.mysqlUrl, NODE_ENV: 'test', DATA_DIR: folder }
  return new Promise((resolve) => {
    execFile(process.execPath, [SCRIPT], { env }, (error, _, errors) =>
      resolve({ status: error ? error.code : 0, errors }),
    )
  })
}

/** Of another statement that waits for a table of this database. */
async function waitingConnection({ knex }: TestDatabase['database']): Promise<number | undefined> {
  const [rows] = await knex.raw(
    `SELECT id AS id FROM information_schema.processlist
     WHERE db = DATABASE() AND id <> CONNECTION_ID() AND state LIKE 'Waiting for table metadata lock%'`,
  )
  return rows[0]?.id
}

/** Nobody reads the table meanwhile. */
async function whileLocked<T>(knex: Knex, table: string, work: () => Promise<T>): Promise<T> {
  const holder = await knex.transaction()
  try {
    await holder.raw('LOCK TABLES ?? WRITE', [table])
    return await work()
  } finally {
    await holder.raw('UNLOCK TABLES')
    await holder.rollback()
  }
}

test('says in one line that its connection broke, and ends with 2', async () => {
  const { knex } = database.database
  const ended = await whileLocked(knex, 'lanes', async () => {
    const running = runDoctor()
    await expect.poll(() => waitingConnection(database.database), { timeout: 20_000 }).toBeGreaterThan(0)
    await knex.raw(`KILL ${Number(await waitingConnection(database.database))}`)
    return running
  })
  expect(ended).toEqual({
    status: 2,
    errors: expect.stringMatching(
      /^doctor: the database failed before everything was looked at \(\w+\): run it again\n$/,
    ),
  })
}, 60_000)
