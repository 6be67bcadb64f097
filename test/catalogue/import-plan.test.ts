/**
 * An import must not depend on the server's statistics. It is validated a moment after it was filled: both servers have then read all its
 * rows for each of them, and MySQL 9 all contents of its packages for each test of the lab, also with statistics of the same moment.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { commitRows } from '../../src/catalogue/import-commit-repository.ts'
import type { ImportKind } from '../../src/catalogue/import-rules.ts'
import { validateRows } from '../../src/catalogue/import-validation-repository.ts'
import { insertImport } from '../../src/catalogue/imports-repository.ts'
import { newId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { StatementRecorder } from '../support/statement-recorder.ts'

const TESTS = 200
const PACKAGES = 500
const CONTENTS = 20
const TABLES = ['tests', 'packages', 'package_tests', 'party_test_prices', 'party_package_prices', 'rate_list_prices', 'parties', 'operator_lists', 'catalogue_imports', 'catalogue_import_rows', 'catalogue_import_contents'] // prettier-ignore

let db: TestDatabase
const recorder = new StatementRecorder()
const [accountId, labId] = [newId(0), newId(1)]
const now = new Date('2026-11-01T00:00:00Z')
const parties = Array.from({ length: 5 }, () => newId(2))
const lists = parties.map((_, n) => `List ${n}`)
const numbers = (length: number) => Array.from({ length }, (_, n) => n)

beforeAll(async () => {
  db = await openTestDatabase()
  const { knex } = db.database
  // Their statistics stay those of empty tables.
  for (const table of TABLES) {
    await knex.raw('ALTER TABLE ?? STATS_PERSISTENT = 1, STATS_AUTO_RECALC = 0', [table])
    await knex.raw('TRUNCATE TABLE ??', [table])
  }
  const base = { account_id: accountId, lab_id: labId, name: 'x', created_at: now }
  const tests = numbers(TESTS).map((n) => ({ ...base, id: newId(3), code: `T${n}`, cost: 1, service_id: `S${n}` }))
  await knex('tests').insert(tests)
  await knex('parties').insert(parties.map((id) => ({ id, account_id: accountId, kind: 'corporate', name: 'x', created_at: now }))) // prettier-ignore
  await knex('operator_lists').insert(lists.map((value, position) => ({ account_id: accountId, list: 'rate_list_type', position, value }))) // prettier-ignore
})
afterAll(async () => {
  recorder.stop()
  // They belong to nobody, which the last look at the database would find.
  for (const table of [...TABLES, 'catalogue_versions']) await db.database.knex(table).truncate()
  await db.close()
})

/** Validated and committed, but its rows stay, so that their statements can be explained. */
async function runImport(kind: ImportKind, rows: object[], contents: object[] = []): Promise<void> {
  const { knex } = db.database
  const begun = { id: newId(4), accountId, labId, kind, createdAt: now }
  const base = { import_id: begun.id, item_kind: 'test', name: 'x', price: 2, sets_service_id: true }
  await knex.batchInsert('catalogue_import_rows', rows.map((row, n) => ({ ...base, line: n + 2, new_id: newId(5), ...row })), 1000) // prettier-ignore
  await knex.batchInsert(
    'catalogue_import_contents',
    contents.map((row) => ({ import_id: begun.id, ...row })),
    5000,
  )
  await knex.transaction(async (trx) => {
    await insertImport(trx, begun)
    const open = { ...begun, state: 'open' as const, rows: rows.length, refused: null, created: null, updated: null, endedAt: null } // prettier-ignore
    expect(await validateRows(trx, open)).toMatchObject({ refused: 0 })
    expect(await commitRows(trx, open, now)).toBe(true)
  })
}

/** Each table by its key, in the order in which they are read. What a server makes for itself has no name of ours. */
async function stepsOf(sql: string): Promise<string> {
  const [plan] = await db.database.knex.raw(`EXPLAIN FORMAT=TRADITIONAL ${sql.replaceAll('?', '\\?')}`)
  const steps = (plan as Record<string, string>[]).filter(({ table }) => /^[a-z]$/.test(table!))
  return steps.map(({ table, type, key }) => `${table} ${type === 'ALL' ? 'as a whole' : `by ${key}`}`).join(', ')
}

const withoutHints = (sql: string) => sql.replaceAll('STRAIGHT_JOIN', 'JOIN').replaceAll(/FORCE INDEX \(\w+\)/g, '')

const WANTED: [statement: RegExp, steps: string][] = [
  [/^UPDATE \(SELECT line, first_line/, 'r by PRIMARY'],
  [/LEFT JOIN tests i /, 'r by PRIMARY, i by tests_code'],
  [/LEFT JOIN packages i /, 'r by PRIMARY, i by packages_code'],
  [/tests t FORCE INDEX \(tests_service\)/, 'r by PRIMARY, t by tests_service, o by catalogue_import_rows_code'],
  [/^UPDATE \(SELECT c\.line/, 'r by PRIMARY, c by PRIMARY, t by tests_code'],
  [/LEFT JOIN parties /, 'r by PRIMARY, p by PRIMARY'],
  [/LEFT JOIN party_test_prices /, 'r by PRIMARY, t by PRIMARY, p by PRIMARY'],
  [/LEFT JOIN rate_list_prices /, 'r by PRIMARY, p by PRIMARY'],
  [/JOIN tests t FORCE INDEX \(PRIMARY\).*SET t.service_id = NULL/s, 'r by PRIMARY, t by PRIMARY'],
  [/JOIN tests t FORCE INDEX \(PRIMARY\).*SET t.name/s, 'r by PRIMARY, t by PRIMARY'],
  [/JOIN packages k /, 'r by PRIMARY, k by PRIMARY'],
  [/^DELETE c FROM/, 'r by PRIMARY, c by PRIMARY'],
  [/^INSERT INTO package_tests/, 'r by PRIMARY, c by PRIMARY, t by tests_code'],
]

test('an import begins with its rows and finds everything else by a key, whatever the statistics say', async () => {
  const items = numbers(TESTS)
  await runImport('tests', items.map((n) => ({ code: `T${n}`, service_id: `S${(n + 1) % TESTS}` }))) // prettier-ignore
  const packages = numbers(PACKAGES)
  const contents = packages.flatMap((n) => numbers(CONTENTS).map((position) => ({ line: n + 2, position, test_code: `T${(n + position) % TESTS}` }))) // prettier-ignore
  await runImport('packages', packages.map((n) => ({ item_kind: 'package', code: `P${n}` })), contents) // prettier-ignore
  await runImport('party_prices', parties.flatMap((party_id) => items.map((n) => ({ code: `T${n}`, party_id })))) // prettier-ignore
  await runImport('rate_list_prices', lists.flatMap((rate_list_type) => items.map((n) => ({ code: `T${n}`, rate_list_type })))) // prettier-ignore
  recorder.stop()

  const statements = recorder.statements.filter((sql) => sql.includes('FORCE INDEX') && sql.includes('JOIN'))
  const chosen: string[] = []
  for (const statistics of ['of empty tables', 'of this moment']) {
    if (statistics === 'of this moment') await db.database.knex.raw(`ANALYZE TABLE ${TABLES.join(', ')}`)
    for (const [statement, steps] of WANTED) {
      const found = statements.filter((sql) => statement.test(sql))
      expect(found.length, String(statement)).toBeGreaterThan(0)
      for (const sql of found) {
        const start = sql.slice(0, 300)
        expect([statistics, start, await stepsOf(sql)]).toEqual([statistics, start, steps])
        chosen.push(await stepsOf(withoutHints(sql)))
      }
    }
  }
  // The check itself: left to choose, both servers read all rows for each.
  expect(chosen).toContain('r by PRIMARY, t by tests_service, o by PRIMARY')
}, 60_000)
