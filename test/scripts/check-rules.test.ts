import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'

let tree: string
beforeEach(() => {
  tree = mkdtempSync(join(tmpdir(), 'lis-rules-'))
})
afterEach(() => rmSync(tree, { recursive: true, force: true }))

/** @returns what `make check` says of a tree that has this one file */
function check(path: string, code: string): { status: number | null; lines: string } {
  mkdirSync(dirname(join(tree, path)), { recursive: true })
  writeFileSync(join(tree, path), code)
  const script = join(import.meta.dirname, '../../scripts/check-rules.ts')
  const { status, stdout } = spawnSync(process.execPath, [script, tree], { encoding: 'utf8' })
  return { status, lines: stdout }
}

const CLOCKS = [
  ['NOW()', "export const sql = 'UPDATE a SET b = NOW()'"],
  ['now(6) in small letters', 'export const sql = `SELECT now( 6 )`'],
  ['CURRENT_TIMESTAMP without brackets', "export const sql = 'SELECT CURRENT_TIMESTAMP'"],
  ['UTC_TIMESTAMP behind a value', 'export const sql = (a: string) => `SELECT ${a}, UTC_TIMESTAMP(3)`'],
  ['SYSDATE between values', 'export const sql = (a: string) => `SELECT ${a}, SYSDATE(6), ${a}`'],
  ['UNIX_TIMESTAMP of nothing', "export const sql = 'SELECT UNIX_TIMESTAMP()'"],
  ['the query builder', 'export const at = (knex: any) => knex.fn.now()'],
] as const

test.each(CLOCKS)('a clock in SQL is refused: %s', (_, code) => {
  for (const folder of ['src/crm', 'daemon', 'db/migrations']) {
    const { status, lines } = check(`${folder}/a.ts`, code)
    expect([status, lines]).toEqual([1, expect.stringContaining(`${folder}/a.ts:1 the server's time comes from`)])
    rmSync(join(tree, folder), { recursive: true })
  }
})

test('what only looks like a clock is let through: one that is passed in, a comment, another function, the helper itself', () => {
  const code = `// As NOW() would do it.
    export const sql = (now: () => Date) => \`SELECT UNIX_TIMESTAMP(due_at) FROM a WHERE known(\${now()})\``
  expect(check('src/a.ts', code)).toEqual({ status: 0, lines: '' })
  expect(check('db/server-time.ts', "export const SERVER_TIME = 'UTC_TIMESTAMP(6)'")).toEqual({ status: 0, lines: '' })
})
