/**
 * MariaDB 11.6 and later refuse by themselves to lock a row that was changed since the statement began, also in READ COMMITTED,
 * where the statement reads something without locks as well. What is written for the row as it is then would fail now and then.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { COMMIT } from '../../db/batch.ts'
import { connectDatabase, withinBudget, type Database } from '../../db/connection.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { isUnderWay } from '../support/under-way.ts'

const SHOW = "SHOW SESSION VARIABLES LIKE 'innodb_snapshot_isolation'"

let db: TestDatabase
/** With one connection in each pool. */
let database: Database

beforeAll(async () => {
  db = await openTestDatabase()
  database = connectDatabase(db.mysqlUrl, 1)
  await database.knex.raw('CREATE TABLE counters (id INT PRIMARY KEY, n INT NOT NULL)')
  await database.knex('counters').insert([1, 2].map((id) => ({ id, n: 0 })))
})
afterAll(async () => {
  await database?.close()
  await db?.database.knex.raw('DROP TABLE counters')
  await db?.close()
})

const settings = async () => [
  (await database.knex.raw(SHOW))[0],
  await database.batch.transaction(async (send) => (await send([{ sql: SHOW }]))[0]),
]

test('no session asks for it', async () => {
  for (const rows of await settings()) expect(rows.map(({ Value }: { Value: string }) => Value)).not.toContain('ON')
})

/** Locks one counter after the other, and reads another table without a lock for each. */
const LOCK = 'SELECT id, (SELECT COUNT(*) FROM accounts a WHERE a.id <> c.id) FROM counters c ORDER BY id FOR UPDATE'
const COUNT = 'UPDATE counters SET n = n + 1'

test('a session that it was switched on for runs the transaction again; others need not, and count as well', async () => {
  const [[known]] = await settings()
  if (known) {
    const on = 'SET SESSION innodb_snapshot_isolation = 1'
    await database.knex.raw(on)
    await database.batch.transaction((send) => send([{ sql: on }]))
  }
  let tries = 0
  const counts = [
    () => database.transaction((trx) => once(() => trx.raw(LOCK).then(() => trx.raw(COUNT)))),
    () =>
      withinBudget(() =>
        database.batch.transaction((send) => once(() => send([{ sql: LOCK }, { sql: COUNT }, COMMIT]))),
      ),
  ]
  async function once(work: () => Promise<unknown>): Promise<void> {
    tries += 1
    await work()
  }
  for (const [n, count] of counts.entries()) {
    tries = 0
    let counted: Promise<void> | undefined
    await db.database.knex.transaction(async (trx) => {
      await trx('counters').where({ id: 2 }).increment('n', 1)
      counted = count()
      await expect.poll(() => isUnderWay(db.database.knex, LOCK)).toBe(true)
    })
    await counted
    expect(tries).toBe(known ? 2 : 1)
    expect(await database.knex('counters').first('n')).toEqual({ n: n + 1 })
  }
})
