import { spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { toJson, toTable } from '../../scripts/operator/print-answer.ts'
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { buildAccount, buildLab, buildOperatorKey, buildTest, type TestAccount } from '../support/builders.ts'
import { toCsv } from '../support/csv.ts'

const ROOT = join(import.meta.dirname, '..', '..')
/** In the suite: small enough for every machine, and the size that the service promises a minute for. */
const IMPORTED_ROWS = 20_000
const IMPORT_LIMIT_MS = 60_000

let app: TestApp
let account: TestAccount
let lab: Lab
let key: string
let folder: string

beforeAll(async () => {
  app = await startTestApp()
  account = await buildAccount(app)
  lab = await buildLab(app, account)
  key = await buildOperatorKey(app)
  folder = mkdtempSync(join(tmpdir(), 'lis-operator-'))
})
afterAll(async () => {
  rmSync(folder, { recursive: true, force: true })
  await app.close()
})

/** Runs the command in an empty folder, with nothing in its environment but what is given. */
function run(
  args: string[],
  env: Record<string, string> = {},
): Promise<{ code: number | null; out: string; err: string }> {
  const settings = { OPERATOR_URL: `http://127.0.0.1:${app.port}`, OPERATOR_KEY: key, ...env }
  const child = spawn(process.execPath, [join(ROOT, 'scripts', 'operator.ts'), ...args], {
    cwd: folder,
    env: { PATH: process.env.PATH ?? '', ...settings },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let out = ''
  let err = ''
  child.stdout.on('data', (chunk) => (out += chunk))
  child.stderr.on('data', (chunk) => (err += chunk))
  return new Promise((resolve, reject) => {
    child.on('error', reject)
    child.on('close', (code) => resolve({ code, out, err }))
  })
}

function file(name: string, content: string | Buffer): string {
  const path = join(folder, name)
  writeFileSync(path, content)
  return path
}

const importing = (kind: string, path: string, ...more: string[]) =>
  run(['import', kind, path, '--lab', lab.id, ...more])
const countTests = async (labId = lab.id) => {
  const row = await app.database.knex('tests').where({ lab_id: labId }).count({ rows: '*' }).first()
  return Number(row!.rows)
}

describe('an operation of the contract is a command', () => {
  test('with its fields as options, JSON as output, and 0 where it is done', async () => {
    const { code, out } = await run([
      'create-lab',
      '--accountId',
      account.id,
      '--name',
      'Kothrud',
      '--contact',
      '2025461234',
    ])
    expect(code).toBe(0)
    expect(JSON.parse(out)).toMatchObject({
      accountId: account.id,
      name: 'Kothrud',
      contact: '2025461234',
      adminEmail: null,
    })
  })

  test('that creates something is sent under a key of its own, or the one that is named', async () => {
    const create = ['create-lab', '--accountId', account.id, '--name', 'Baner', '--contact', '2025461235']
    const made = async (...more: string[]) => JSON.parse((await run([...create, ...more])).out).labID
    const named = ['--idempotency-key', 'lab-of-baner']
    const [first, repeated, other, another] = [await made(...named), await made(...named), await made(), await made()]
    expect(repeated).toBe(first)
    expect(new Set([first, other, another]).size).toBe(3)
    expect((await run(['create-lab', '--help'])).out).toContain('--idempotency-key')
    expect((await run(['list-accounts', '--idempotency-key', 'x'])).code).toBe(2)
  })

  test('whose values are not what they must be says what they must be', async () => {
    const update = (option: string, value: string) =>
      run(['update-lab', '--labID', lab.id, `--${option}`, value]).then(({ code, err }) => [code, err.trim()])
    expect(await update('active', 'yes')).toEqual([
      2,
      expect.stringContaining('--active must be true or false, not yes'),
    ])
    const test = ['create-test', '--labID', lab.id, '--name', 'x', '--code', 'half', '--cost', '.5']
    expect(JSON.parse((await run(test)).out)).toMatchObject({ cost: 0.5 })
    const data = file('marked.json', '\ufeff{"name": "Marked"}')
    expect(JSON.parse((await run(['update-lab', '--labID', lab.id, '--data', `@${data}`])).out).name).toBe('Marked')
    expect((await run(['list-accounts', '--data', '{}'])).code).toBe(2)
  })

  test('whose numbers, lists and nulls are what the contract says', async () => {
    const elsewhere = await buildLab(app, account)
    const a = await buildTest(app, elsewhere)
    const create = ['create-package', '--labID', elsewhere.id, '--name', '5', '--code', '7', '--total', '99.5']
    const made = JSON.parse((await run([...create, '--tests', a.id])).out)
    expect(made).toMatchObject({ name: '5', code: '7', total: 99.5, tests: [{ test: a.id, name: a.name }] })
    const bill = ['create-bill', '--accountId', account.id, '--labID', elsewhere.id, '--firstName', 'Asha']
    const billed = await run([...bill, '--tests', JSON.stringify([{ test: a.id }])])
    expect(JSON.parse(billed.out)).toMatchObject({ labID: elsewhere.id, items: [{ kind: 'test', id: a.id }] })
    expect((await run(['create-bill', '--help'])).out).toMatch(/--tests .* As JSON\./)
    const updated = await run(['update-lab', '--labID', elsewhere.id, '--active', 'false', '--adminEmail', 'null'])
    expect(JSON.parse(updated.out)).toMatchObject({ active: false, adminEmail: null })
  })

  test('that collects every page of a list, as a table', async () => {
    const elsewhere = await buildLab(app, account)
    for (const name of ['Alpha', 'Beta', 'Gamma']) await buildTest(app, elsewhere, { name })
    const args = ['list-lab-tests', '--labID', elsewhere.id, '--limit', '1', '--output', 'table']
    const { out } = await run([...args, '--all'])
    const lines = out.trim().split('\n')
    expect(lines).toHaveLength(4)
    expect(lines[0]).toMatch(/^testId +labID +name +code +cost +active +createdAt$/)
    expect((await run(args)).out).toContain('more: --cursor ')
  })

  test('that shows as a table what was set, also where one list of it is empty', () => {
    const settings = { accountId: 'a', customFields: ['x', 'y'], paymentGateways: [] }
    expect(toTable(settings)).toBe('accountId        a\ncustomFields     ["x","y"]\npaymentGateways  []\n')
    expect(toTable({ ...settings, customFields: [] })).toContain('customFields     []\n')
    expect(toTable({ webhookId: 'w', events: [] })).toBe('webhookId  w\nevents     []\n')
    expect(toTable({ accounts: [], nextCursor: null })).toBe('no accounts\n')
    expect(toTable({ imported: 1, errors: [{ line: 2 }] })).toBe('line\n2\n')
  })

  test('that shows no character which a terminal would follow', () => {
    const answer = { name: 'B\u009b31m\u202eA\u007f\u2066\u061c\u001b[31m\u2028é' }
    expect(JSON.parse(toJson(answer))).toEqual(answer)
    for (const shown of [toJson(answer), toTable(answer)]) {
      expect(shown).toMatch(/^[\n\x20-\x7eé]+$/)
      expect(shown).toContain('é')
    }
  })

  test('that says what is wrong, and ends with 1 when refused, 2 when called wrongly, 3 without an answer', async () => {
    const [refused, forbidden, unknown, missing, surplus, silent, worded] = await Promise.all([
      run(['create-lab', '--accountId', account.id, '--name', '', '--contact', '1']),
      run(['list-accounts'], { OPERATOR_KEY: 'wrong' }),
      run(['make-coffee']),
      run(['get-lab']),
      run(['get-lab', '--labID', lab.id, '--colour', 'red']),
      run(['list-accounts'], { OPERATOR_URL: 'http://127.0.0.1:1' }),
      run(['create-test', '--labID', lab.id, '--name', 'CBC', '--code', 'C', '--cost', 'abc']),
    ])
    expect([worded!.code, worded!.err]).toEqual([2, 'operator: --cost must be a number, not abc\n'])
    expect([refused, forbidden, unknown, missing, surplus, silent].map(({ code }) => code)).toEqual([1, 1, 2, 2, 2, 3])
    expect(refused!.err).toBe('operator: 400 Bad Request: name must not be empty\n')
    expect(forbidden!.err).toBe('operator: 401 Unauthorized: invalid operator key\n')
    expect(missing!.err).toBe('operator: --labID is required\n')
    expect(silent!.err).toContain('http://127.0.0.1:1 does not answer')
  })

  test('that finds the address and the key of a service that make run has started, or takes the key from a file', async () => {
    mkdirSync(join(folder, '.data'))
    file('.data/demo.json', JSON.stringify({ baseUrl: `http://127.0.0.1:${app.port}`, operatorKey: key }))
    const keyFile = file('key', `${key}\n`)
    const answers = await Promise.all([
      run(['get-lab', '--labID', lab.id], { OPERATOR_URL: '', OPERATOR_KEY: '' }),
      run(['get-lab', '--labID', lab.id, '--key-file', keyFile], { OPERATOR_KEY: 'wrong' }),
    ])
    expect(answers.map(({ out }) => JSON.parse(out).labID)).toEqual([lab.id, lab.id])

    // Where operators have a port of their own, or a proxy is in front.
    const operatorUrl = `http://127.0.0.1:${app.port}`
    file('.data/demo.json', JSON.stringify({ baseUrl: 'http://127.0.0.1:1', operatorUrl, operatorKey: key }))
    const answer = await run(['get-lab', '--labID', lab.id], { OPERATOR_URL: '', OPERATOR_KEY: '' })
    expect(JSON.parse(answer.out).labID).toBe(lab.id)
  })

  test('that explains itself', async () => {
    const [all, one] = await Promise.all([run(['--help']), run(['update-lab', '--help'])])
    expect([all!.code, one!.code]).toEqual([0, 0])
    for (const command of ['bootstrap-key', 'import', 'list-accounts', 'rotate-client-secret'])
      expect(all!.out).toContain(`  ${command}  `)
    expect(one!.out).toContain('  --labID (required)  The id of the lab.')
  })
})

test('bootstrap-key writes an admin key for all accounts, which serves at once and stands in the audit', async () => {
  const url = app.mysqlUrl
  const { code, out } = await run(['bootstrap-key', '--name', 'First'], { MYSQL_URL: url })
  expect(code).toBe(0)
  const made = JSON.parse(out)
  expect(made).toMatchObject({ name: 'First', role: 'admin', accountId: null })
  const { body } = await app.call('GET', '/operator/audit-entries', { token: made.key, query: { keyId: made.keyId } })
  expect(body.auditEntries).toMatchObject([{ operation: 'bootstrap-key', targets: { keyId: made.keyId } }])
  expect((await run(['bootstrap-key'])).code).toBe(2)
})

describe('import', () => {
  test(`takes ${IMPORTED_ROWS} tests in less than a minute, and tells how far it is`, { timeout: 90_000 }, async () => {
    const elsewhere = await buildLab(app, account)
    const rows = Array.from({ length: IMPORTED_ROWS }, (_, n) => [`T${n}`, `Test, number "${n}"`, n / 100, `S${n}`])
    const path = file('tests.csv', toCsv([['code', 'name', 'cost', 'serviceID'], ...rows]))
    const startedAt = performance.now()
    const { code, out, err } = await run(['import', 'tests', path, '--lab', elsewhere.id])
    expect({ code, out }).toEqual({
      code: 0,
      out: `${IMPORTED_ROWS} rows taken: ${IMPORTED_ROWS} created, 0 changed\n`,
    })
    expect(performance.now() - startedAt).toBeLessThan(IMPORT_LIMIT_MS)
    expect(err).toContain(`sent ${IMPORTED_ROWS} of ${IMPORTED_ROWS} rows\n`)
    expect(await countTests(elsewhere.id)).toBe(IMPORTED_ROWS)
    const last = await app.database.knex('tests').where({ lab_id: elsewhere.id, code: 'T19999' }).first()
    expect(last).toMatchObject({ name: 'Test, number "19999"', cost: 199.99, service_id: 'S19999' })
  })

  test('tells every refused line with its number, those of the file and those of the service, and changes nothing', async () => {
    const path = file(
      'bad.csv',
      '\ufeffCode,NAME,cost\nA,Alpha,1\nB,Beta\nC,Gamma,free\n\nD,"De"lta,4\nE,Epsilon,5,5\nA,Alpha again,6\n',
    )
    const before = await countTests()
    const { code, out, err } = await importing('tests', path)
    expect(code).toBe(1)
    expect(out.split('\n')).toEqual([
      'line 3: has 2 cells, the header has 3',
      'line 4: cost must be an amount with at most two decimals, such as 350 or 349.50',
      'line 6: is not valid CSV: see its quotes',
      'line 7: has 4 cells, the header has 3',
      'line 8: the same as line 2',
      '',
    ])
    expect(err).toContain('operator: 5 of 6 lines are refused, nothing was changed\n')
    expect(await countTests()).toBe(before)
  })

  test('with --dry-run says what it would do, and changes nothing', async () => {
    await buildTest(app, lab, { code: 'THERE' })
    const path = file('dry.csv', 'name;cost;code\nThere;1;THERE\nNew;2.5;NEW\n')
    const before = await countTests()
    const { code, out } = await importing('tests', path, '--dry-run', '--delimiter', ';', '--output', 'json')
    expect([code, JSON.parse(out)]).toEqual([0, { dryRun: true, rows: 2, created: 1, updated: 1 }])
    expect(await countTests()).toBe(before)
    const open = await app.database.knex('catalogue_imports').where({ state: 'open' })
    expect(open).toEqual([])
  })

  test('refuses a file that is no such list', async () => {
    const answers = await Promise.all([
      importing('tests', file('empty.csv', '')),
      importing('tests', file('header.csv', 'code,name,cost\n')),
      importing('tests', file('columns.csv', 'code,title,cost\nA,B,1\n')),
      importing('packages', file('missing.csv', 'code,name,total\nA,B,1\n')),
      importing('tests', file('latin.csv', Buffer.from('code,name,cost\nA,Caf\xe9,1\n', 'latin1'))),
      importing('colours', file('colours.csv', 'code\nA\n')),
      importing('tests', join(folder, 'nowhere.csv')),
    ])
    expect(answers.map(({ code }) => code)).toEqual([1, 1, 1, 1, 1, 2, 2])
    expect(answers.map(({ err }) => err.trim())).toEqual([
      'operator: the file has no header',
      'operator: the file has no rows',
      'operator: line 1: unknown column "title", known are code, name, cost, serviceID',
      'operator: line 1: the column tests is missing',
      'operator: the file is not UTF-8: save it as such',
      'operator: import takes a kind and a file: see import --help',
      `operator: ${join(folder, 'nowhere.csv')} can't be read (ENOENT)`,
    ])
  })
})
