import { afterAll, beforeAll, expect, test } from 'vitest'
import { COMMIT, idList, type BatchResult, type Statement } from '../../db/batch.ts'
import { newId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'

let db: TestDatabase
beforeAll(async () => {
  db = await openTestDatabase()
})
afterAll(() => db.close())

async function ask(statement: Statement): Promise<BatchResult> {
  const [, rows] = await db.database.batch.transaction((send) => send([{ sql: 'DO 0' }, statement]))
  return rows!
}

test('values reach the server as they are, whatever they contain', async () => {
  const values = ["'", '"', '\\', "' OR 1 = 1 -- ", '?', '??', 'ä\u0000\n', '/* ? */', "\\'", 'plain']
  const rows = await ask({ sql: `SELECT ${values.map((_, n) => `? AS v${n}`).join(', ')}, '?' AS asked`, values })
  expect(Object.values(rows[0]!)).toEqual([...values, '?'])
})

test('what looks like a place for a value in a text without values stays', async () => {
  expect((await ask({ sql: "SELECT '?' AS one, '??' AS two" }))[0]).toEqual({ one: '?', two: '??' })
})

test('dates are written in UTC', async () => {
  const rows = await ask({ sql: 'SELECT CAST(? AS CHAR) AS at', values: [new Date('2026-11-22T23:30:00.123Z')] })
  expect(rows[0]!.at).toBe('2026-11-22 23:30:00.123')
})

test('a list of ids finds them all and nothing else', async () => {
  const ids = Array.from({ length: 300 }, () => newId(1))
  const values = ids.flatMap((id) => [id, idList(ids.filter((other) => other !== id)), idList(ids)])
  const rows = await ask({ sql: `SELECT ${ids.map((_, n) => `CONCAT(?) IN (?) AS o${n}, 'x' IN (?) AS n${n}`).join(', ')}`, values }) // prettier-ignore
  expect(new Set(Object.values(rows[0]!))).toEqual(new Set([0]))
  const found = await ask({
    sql: `SELECT ${ids.map((_, n) => `? IN (?) AS f${n}`).join(', ')}`,
    values: ids.flatMap((id) => [id, idList(ids)]),
  })
  expect(Object.values(found[0]!)).toEqual(ids.map(() => 1))
})

test('whatever stands in a list of ids stays a text', async () => {
  const evil = ["a') OR ('1' = '1", "\\'", "b','c", '"', "') -- "]
  const rows = await ask({ sql: "SELECT 'd' IN (?) AS others, ? IN (?) AS own", values: [idList(evil), evil[0], idList(evil)] }) // prettier-ignore
  expect(rows[0]).toEqual({ others: 0, own: 1 })
})

test('what each statement brings comes in their order, and one that fails ends all', async () => {
  const { batch } = db.database
  const results = await batch.transaction((send) =>
    send([{ sql: 'SELECT 1 AS one UNION SELECT 2' }, { sql: 'DO 0' }, { sql: 'SELECT 3' }, COMMIT]),
  )
  expect(results.map((rows) => rows.length)).toEqual([2, undefined, 1, undefined])
  const failing = batch.transaction((send) => send([{ sql: 'SELECT nothing FROM nowhere' }, { sql: 'DO 0' }, COMMIT]))
  await expect(failing).rejects.toThrow(/nowhere/)
})
