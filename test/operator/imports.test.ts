import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import { newId } from '../../src/ids.ts'
import { encodeCursor } from '../../src/paging.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { countAudited } from '../support/audited.ts'
import {
  buildAccount,
  buildLab,
  buildOperatorKey,
  buildPackage,
  buildParty,
  buildTest,
  setTestPrice,
  type TestAccount,
} from '../support/builders.ts'

let app: TestApp
let token: string
let account: TestAccount
let lab: Lab

beforeAll(async () => {
  app = await startTestApp()
  token = await buildOperatorKey(app)
  account = await buildAccount(app, { mode: 'party_scoped' })
})
afterAll(() => app.close())
beforeEach(async () => {
  lab = await buildLab(app, account)
})

type Cells = Record<string, string>

const call = (method: string, path: string, body?: unknown, query?: Record<string, string>) =>
  app.call(method, `/operator/labs/${lab.id}${path}`, { token, body, ...(query ? { query } : {}) })
const put = (path: string, rows: unknown) => call('PUT', `${path}/rows`, { rows })
const commit = (path: string, rows: number) => call('POST', `${path}/commit`, { rows })

async function begin(kind: string): Promise<string> {
  return `/imports/${(await call('POST', '/imports', { kind })).body.importId}`
}

/** The first row stands on line 2, below the header. */
async function send(kind: string, cells: Cells[]): Promise<string> {
  const path = await begin(kind)
  const rows = cells.map((row, index) => ({ line: index + 2, cells: row }))
  expect((await put(path, rows)).body).toMatchObject({ state: 'open', rows: rows.length })
  return path
}

async function refusals(kind: string, cells: Cells[]): Promise<Record<number, string>> {
  const path = await send(kind, cells)
  const validated = (await call('POST', `${path}/validate`)).body
  const { body } = await call('GET', `${path}/refusals`)
  expect(validated.refused).toBe(body.refusals.length)
  return Object.fromEntries(body.refusals.map(({ line, fault }: any) => [line, fault]))
}

const listed = async (what: 'tests' | 'packages') => (await call('GET', `/${what}`)).body[what]
const byCode = (rows: any[]) => Object.fromEntries(rows.map((row) => [row.code, row]))
const CBC = { code: 'CBC', name: 'Complete Blood Count', cost: '350' }

describe('an import of tests', () => {
  test('creates what the lab does not have and changes what it has, by code, and removes nothing', async () => {
    await buildTest(app, lab, { code: 'KEPT', name: 'Kept', cost: 10 })
    const old = await buildTest(app, lab, { code: 'OLD', name: 'Old', cost: 20, serviceId: 'S-1' })
    const path = await send('tests', [
      { code: ' OLD ', name: 'Renamed', cost: '21.50' },
      { ...CBC, serviceID: 'S-2' },
    ])
    const validated = (await call('POST', `${path}/validate`)).body
    expect(validated).toMatchObject({ state: 'open', rows: 2, refused: 0, created: 1, updated: 1 })
    expect(await listed('tests')).toHaveLength(2)
    const done = (await commit(path, 2)).body
    expect(done).toMatchObject({ state: 'committed', rows: 2, refused: 0, created: 1, updated: 1 })
    const tests = byCode(await listed('tests'))
    expect(Object.keys(tests).sort()).toEqual(['CBC', 'KEPT', 'OLD'])
    expect(tests.CBC).toMatchObject({ name: 'Complete Blood Count', cost: 350, serviceID: 'S-2', active: true })
    // Without the column the serviceID stays.
    expect(tests.OLD).toMatchObject({ testId: old.id, name: 'Renamed', cost: 21.5, serviceID: 'S-1' })
    expect(tests.KEPT).toMatchObject({ name: 'Kept', cost: 10 })
  })

  test('exchanges the serviceIDs of two tests, and an empty cell removes one', async () => {
    for (const code of ['A', 'B', 'C']) await buildTest(app, lab, { code, serviceId: `S-${code}` })
    const cells = (code: string, serviceID: string) => ({ code, name: code, cost: '1', serviceID })
    const path = await send('tests', [cells('A', 'S-B'), cells('B', 'S-A'), cells('C', '')])
    expect((await commit(path, 3)).status).toBe(200)
    const tests = byCode(await listed('tests'))
    expect([tests.A.serviceID, tests.B.serviceID, tests.C.serviceID]).toEqual(['S-B', 'S-A', undefined])
  })

  test('tells every refused line by its number, by itself and beside the others', async () => {
    await buildTest(app, lab, { code: 'HAS', serviceId: 'S-9' })
    const cells = (code: string, more: Cells) => ({ code, name: 'x', cost: '1', ...more })
    const rows: [Cells, string | undefined][] = [
      [cells('OK', {}), undefined],
      [cells('', {}), 'code is missing'],
      [cells('N', { name: ' ' }), 'name is missing'],
      [cells('L', { name: 'x'.repeat(201) }), 'name must have at most 200 characters'],
      [cells('M', { cost: '1.005' }), 'cost must be an amount with at most two decimals, such as 350 or 349.50'],
      [cells('G', { cost: '-1' }), 'cost must be an amount with at most two decimals, such as 350 or 349.50'],
      [cells('K', { cost: '1,200' }), 'cost must be an amount with at most two decimals, such as 350 or 349.50'],
      [cells('OK', {}), 'the same as line 2'],
      [cells('T', { name: 'a\tb' }), 'name must not have line breaks or other control characters'],
      [cells('S1', { serviceID: 'S-1' }), undefined],
      [cells('S2', { serviceID: 'S-1' }), 'the serviceID of line 11'],
      [cells('S3', { serviceID: 'S-9' }), 'the serviceID of the test HAS'],
    ]
    const expected = rows.flatMap(([, fault], index) => (fault === undefined ? [] : [[index + 2, fault] as const]))
    expect(
      await refusals(
        'tests',
        rows.map(([row]) => row),
      ),
    ).toEqual(Object.fromEntries(expected))
  })

  test('that has a refused line changes nothing, and can be mended line by line', async () => {
    const path = await send('tests', [CBC, { code: 'TSH', name: 'TSH', cost: 'free' }])
    const answer = await commit(path, 2)
    expect([answer.status, answer.body.error.code]).toEqual([409, 'import_refused'])
    expect(answer.body.error.details).toBe('1 row is refused: see the refusals of the import')
    expect(await countAudited(app, 'commitImport', path.split('/').at(-1)!)).toBe(0)
    expect(await listed('tests')).toEqual([])
    expect((await call('GET', `${path}/refusals`)).body.refusals.map(({ line }: any) => line)).toEqual([3])
    for (const line of ['Infinity', '1e999', '-1', '1.5', 'abc', ''])
      expect([
        line,
        (await call('GET', `${path}/refusals`, undefined, { cursor: encodeCursor([line]) })).status,
      ]).toEqual([line, 400])
    await put(path, [{ line: 3, cells: { code: 'TSH', name: 'TSH', cost: '500' } }])
    expect((await commit(path, 2)).body).toMatchObject({ state: 'committed', created: 2 })
  })
})

describe('an import of packages', () => {
  test('finds its tests by code, keeps their order and replaces the contents of a package', async () => {
    const [a, b] = [await buildTest(app, lab, { code: 'A' }), await buildTest(app, lab, { code: 'B', active: false })]
    const old = await buildPackage(app, lab, [a!], { code: 'OLD' })
    const path = await send('packages', [
      { code: 'OLD', name: 'Old', total: '100', tests: 'B;A' },
      { code: 'NEW', name: 'New', total: '200', tests: ' A ; B;A;' },
    ])
    expect((await commit(path, 2)).body).toMatchObject({ created: 1, updated: 1 })
    const packages = byCode(await listed('packages'))
    const ids = (code: string) => packages[code].tests.map(({ test: id }: any) => id)
    expect(packages.OLD).toMatchObject({ packageId: old.id, total: 100 })
    expect([ids('OLD'), ids('NEW')]).toEqual([
      [b.id, a.id],
      [a.id, b.id],
    ])
  })

  test('refuses tests that the lab does not have, or had', async () => {
    const gone = await buildTest(app, lab, { code: 'GONE' })
    await call('DELETE', `/tests/${gone.id}`)
    await buildTest(app, await buildLab(app, account), { code: 'ELSEWHERE' })
    const cells = (code: string, tests: string) => ({ code, name: code, total: '1', tests })
    const faults = await refusals('packages', [cells('P', 'ELSEWHERE'), cells('Q', 'GONE'), cells('R', ';')])
    expect(faults).toEqual({ 2: 'unknown test ELSEWHERE', 3: 'unknown test GONE', 4: 'tests is missing' })
  })
})

describe('an import of prices', () => {
  test('of parties sets and replaces them', async () => {
    const party = await buildParty(app, account, 'corporate')
    const a = await buildTest(app, lab, { code: 'A', cost: 300 })
    const pack = await buildPackage(app, lab, [a], { code: 'A', total: 900 })
    await setTestPrice(app, party, a, 250)
    const cells = { partyId: party.id, price: '199.90' }
    const path = await send('party_prices', [
      { ...cells, test: 'A' },
      { ...cells, package: 'A', test: '' },
    ])
    expect((await commit(path, 2)).body).toMatchObject({ created: 1, updated: 1 })
    const { prices } = (await call('GET', '/party-prices')).body
    expect(prices).toHaveLength(2)
    expect(prices).toContainEqual({ labID: lab.id, partyId: party.id, test: a.id, price: 199.9 })
    expect(prices).toContainEqual({ labID: lab.id, partyId: party.id, package: pack.id, price: 199.9 })
  })

  test('refuses parties, rate lists, tests and packages that are not there, and a price that is there twice', async () => {
    const party = await buildParty(app, account, 'corporate')
    const foreign = await buildParty(app, await buildAccount(app), 'corporate')
    await buildTest(app, lab, { code: 'A' })
    const cells = { partyId: party.id, test: 'A', price: '1' }
    expect(
      await refusals('party_prices', [
        cells,
        cells,
        { ...cells, partyId: foreign.id },
        { ...cells, partyId: 'é' },
        { ...cells, test: 'B' },
        { ...cells, package: 'A' },
        { ...cells, test: '', package: 'A' },
      ]),
    ).toEqual({
      3: 'the same as line 2',
      4: `unknown party ${foreign.id}`,
      5: 'unknown party é',
      6: 'unknown test B',
      7: 'exactly one of test and package must have a code',
      8: 'unknown package A',
    })
    expect(await refusals('rate_list_prices', [{ rateListType: 'Gold', test: 'A', price: '1' }])).toEqual({
      2: 'unknown rate list Gold',
    })
  })

  test('of rate lists sets and replaces them', async () => {
    const body = { rateListTypes: ['Corporate', 'Camp'] }
    await app.call('PUT', `/operator/accounts/${account.id}/rate-lists`, { token, body })
    const a = await buildTest(app, lab, { code: 'A' })
    for (const price of [150, 140]) {
      const path = await send('rate_list_prices', [{ rateListType: 'Camp', test: 'A', price: String(price) }])
      expect((await commit(path, 1)).status).toBe(200)
      const { prices } = (await call('GET', '/rate-list-prices', undefined, { rateListType: 'Camp' })).body
      expect(prices).toEqual([{ labID: lab.id, rateListType: 'Camp', test: a.id, price }])
    }
  })
})

describe('an import', () => {
  test('can be repeated at every step: rows replace themselves, and a second commit answers the same', async () => {
    const path = await begin('tests')
    const rows = [{ line: 2, cells: CBC }]
    await put(path, rows)
    expect((await put(path, [...rows, ...rows])).body.rows).toBe(1)
    const first = await commit(path, 1)
    const second = await commit(path, 1)
    expect([second.status, second.body]).toEqual([200, first.body])
    expect(await listed('tests')).toHaveLength(1)
    expect((await call('GET', path)).body).toEqual(first.body)
  })

  test('that is full takes its last lines again, and no further one', async () => {
    const path = await begin('tests')
    const importId = path.split('/').at(-1)!
    const row = { import_id: importId, new_id: newId(0), item_kind: 'test', sets_service_id: 0 }
    const lines = Array.from({ length: 24_999 }, (_, index) => ({ ...row, line: index + 2 }))
    await app.database.knex.batchInsert('catalogue_import_rows', lines, 5000)
    const last = [24_999, 25_000, 25_001].map((line) => ({ line, cells: { ...CBC, code: `C${line}` } }))
    for (let n = 0; n < 2; n++) expect((await put(path, last)).body.rows).toBe(25_000)
    const further = await put(path, [...last, { line: 25_002, cells: CBC }])
    expect([further.status, further.body.error.code]).toEqual([409, 'import_too_large'])
  })

  test('of packages takes so many tests in all that it can be committed, its last lines again, and no further one', async () => {
    const path = await begin('packages')
    const row = { import_id: path.split('/').at(-1)!, test_code: 'T' }
    const contents = Array.from({ length: 99_900 }, (_, n) => ({ ...row, line: 2 + Math.floor(n / 100), position: n % 100 })) // prettier-ignore
    await app.database.knex.batchInsert('catalogue_import_contents', contents, 10_000)
    const pack = (line: number, tests: number) => {
      const codes = Array.from({ length: tests }, (_, n) => `T${n}`)
      return { line, cells: { code: `P${line}`, name: 'x', total: '1', tests: codes.join(';') } }
    }
    for (let n = 0; n < 2; n++) expect((await put(path, [pack(1001, 100)])).status).toBe(200)
    const further = await put(path, [pack(1002, 1)])
    expect([further.status, further.body.error.code]).toEqual([409, 'import_too_large'])
    expect(further.body.error.details).toContain('at most 100000 tests in all its packages')
    expect((await call('GET', path)).body.rows).toBe(1)
    expect((await put(path, [pack(1001, 99), pack(1002, 1)])).body.rows).toBe(2)
  })

  test('is not committed before all its rows have arrived, nor with more', async () => {
    const path = await send('tests', [CBC])
    const answers = [await commit(path, 2), await commit(path, 1), await commit(path, 3)]
    expect(answers.map(({ status }) => status)).toEqual([409, 200, 409])
    expect(answers[0]!.body.error.details).toBe('1 of 2 rows have arrived: send the others first')
  })

  test('that has ended takes nothing more', async () => {
    const path = await send('tests', [CBC])
    expect((await call('POST', `${path}/discard`)).body).toMatchObject({ state: 'discarded', rows: 1 })
    const again = await call('POST', `${path}/discard`)
    const late = [
      await put(path, [{ line: 3, cells: CBC }]),
      await call('POST', `${path}/validate`),
      await commit(path, 1),
    ]
    expect([again.status, ...late.map(({ status }) => status)]).toEqual([200, 409, 409, 409])
    expect(late[0]!.body.error.details).toBe('the import is discarded: begin another one')
    const committed = await send('tests', [CBC])
    await commit(committed, 1)
    expect((await call('POST', `${committed}/discard`)).status).toBe(409)
    expect(await countRows(path, committed)).toBe(0)
  })

  test('that nobody has ended for a day is dropped when the next one of the lab begins', async () => {
    const path = await send('tests', [CBC])
    app.clock.advance(25 * 60 * 60 * 1000)
    await begin('tests')
    expect((await call('GET', path)).body.state).toBe('discarded')
    expect(await countRows(path)).toBe(0)
  })

  test('that is ended by many calls at once leaves one entry in the audit', async () => {
    const path = await send('tests', [CBC])
    const answers = await Promise.all(Array.from({ length: 10 }, () => commit(path, 1)))
    expect(answers.map(({ status }) => status)).toEqual(Array(10).fill(200))
    expect(new Set(answers.map(({ body }) => JSON.stringify(body))).size).toBe(1)
    const dropped = await send('tests', [CBC])
    for (let n = 0; n < 2; n++) expect((await call('POST', `${dropped}/discard`)).status).toBe(200)
    const audited = (operation: string, of: string) => countAudited(app, operation, of.split('/').at(-1)!)
    expect([await audited('commitImport', path), await audited('discardImport', dropped)]).toEqual([1, 1])
  })

  test('two of one lab at once make one catalogue: the later one changes what the earlier one has created', async () => {
    const paths = await Promise.all([send('tests', [CBC]), send('tests', [CBC])])
    const answers = await Promise.all(paths.map((path) => commit(path, 1)))
    expect(answers.map(({ status }) => status)).toEqual([200, 200])
    expect(answers.map(({ body }) => body.created + body.updated)).toEqual([1, 1])
    expect(await listed('tests')).toHaveLength(1)
  })

  test('of another lab, account or shape is 404, and one of staff 403', async () => {
    const path = await begin('tests')
    const elsewhere = await buildLab(app, account)
    const bound = await buildOperatorKey(app, { accountId: (await buildAccount(app)).id })
    const staff = await buildOperatorKey(app, { role: 'staff' })
    const get = (labId: string, importPath: string, key: string) =>
      app.call('GET', `/operator/labs/${labId}${importPath}`, { token: key })
    expect((await get(elsewhere.id, path, token)).status).toBe(404)
    expect((await get(lab.id, path, bound)).status).toBe(404)
    expect((await get(lab.id, path, staff)).status).toBe(403)
    for (const id of [newId(0), 'x', '%C3%A9']) expect((await get(lab.id, `/imports/${id}`, token)).status).toBe(404)
  })
})

async function countRows(...paths: string[]): Promise<number> {
  const ids = paths.map((path) => path.split('/').at(-1)!)
  const row = await app.database.knex('catalogue_import_rows').whereIn('import_id', ids).count({ rows: '*' }).first()
  return Number(row!.rows)
}
