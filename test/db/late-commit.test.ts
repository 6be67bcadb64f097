/**
 * What a request may still do to the database when its caller has been told 503: nothing.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { COMMIT } from '../../db/batch.ts'
import { connectDatabase, DatabaseBudget, withinBudget, type Database } from '../../db/connection.ts'
import { runBefore } from '../../db/deadline.ts'
import { startDatabaseProxy, type DatabaseProxy } from '../../scripts/crash/database-proxy.ts'
import { monotonicMs } from '../../src/clock.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'

let direct: TestDatabase
let proxy: DatabaseProxy
/** By way of the proxy. */
let database: Database

beforeAll(async () => {
  direct = await openTestDatabase()
  proxy = await startDatabaseProxy(direct.mysqlUrl)
  database = connectDatabase(proxy.mysqlUrl, 2)
  await direct.database.knex.raw('CREATE TABLE notes (text VARCHAR(40) NOT NULL PRIMARY KEY)')
})
afterAll(async () => {
  await database.close()
  proxy.close()
  await direct.close()
})

const insert = (text: string) => ({ sql: 'INSERT INTO notes (text) VALUES (?)', values: [text] })
const stored = () => direct.database.knex('notes').orderBy('text').pluck('text')
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

async function refusal(work: Promise<unknown>): Promise<{ code?: string }> {
  return work.then(
    () => ({}),
    (error) => error,
  )
}

test('a batch in time gets the results of its own statements only, and is committed', async () => {
  const results = await withinBudget(() =>
    database.batch.transaction((send) => send([insert('in time'), { sql: 'SELECT text FROM notes' }, COMMIT])),
  )
  expect(results).toHaveLength(3)
  expect(results[1]).toEqual([{ text: 'in time' }])
  expect(await stored()).toEqual(['in time'])
})

test('a batch that reaches the server after the answer 503 is not committed', async () => {
  const refused = refusal(
    withinBudget(() =>
      database.batch.transaction(async (send) => {
        await send([{ sql: 'SELECT 1' }])
        proxy.mode = 'hold'
        return send([insert('held back'), COMMIT])
      }),
    ),
  )
  expect(await refused).toMatchObject({ code: 'unavailable' })
  proxy.mode = 'pass'
  // What was held back is through when a statement behind it is answered.
  await pause(500)
  await database.knex.raw('SELECT 1')
  expect(await stored()).not.toContain('held back')
})

test('a transaction whose work ends after the answer 503 is rolled back', async () => {
  const refused = refusal(
    database.transaction(async (trx) => {
      await trx('notes').insert({ text: 'too late' })
      await pause(3700)
    }),
  )
  expect(await refused).toMatchObject({ code: 'unavailable' })
  expect(await stored()).not.toContain('too late')
})

test('what is left of a request’s time holds for the transactions in it, too', async () => {
  const budget = new DatabaseBudget()
  await budget.spend(() => pause(3000))
  let began = false
  const refused = refusal(
    budget.spend(() =>
      withinBudget(() =>
        database.batch.transaction(async (send) => {
          began = true
          await pause(700)
          return send([insert('after its share'), COMMIT])
        }),
      ),
    ),
  )
  expect(await refused).toMatchObject({ code: 'unavailable' })
  expect(began).toBe(true)
  await pause(500)
  expect(await stored()).not.toContain('after its share')
})

test('an answer that has come while the process was busy is heard, though the deadline is over by then', async () => {
  // Its connections are there: nothing but the batch is waited for.
  await direct.database.batch.transaction((send) => send([insert('before'), COMMIT]))
  const done = runBefore(monotonicMs() + 1500, () =>
    withinBudget(() =>
      direct.database.batch.transaction((send) => {
        const sent = send([insert('heard late'), COMMIT])
        for (const endMs = monotonicMs() + 1700; monotonicMs() < endMs;);
        return sent
      }),
    ),
  )
  await done
  expect(await stored()).toContain('heard late')
})
