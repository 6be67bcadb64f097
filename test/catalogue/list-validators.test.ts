import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import type { Package } from '../../src/catalogue/packages-repository.ts'
import type { Party } from '../../src/catalogue/parties-repository.ts'
import type { Test } from '../../src/catalogue/tests-repository.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
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
/** A further process on the same database. */
let other: TestApp
let account: TestAccount
let operator: string
let lab: Lab
let corporate: Party
let doctor: Party
let tests: Test[]
let pack: Package

beforeAll(async () => {
  app = await startTestApp()
  other = await startTestApp({ mysqlUrl: app.mysqlUrl })
  account = await buildAccount(app, { mode: 'party_scoped' })
  operator = await buildOperatorKey(app)
  lab = await buildLab(app, account)
  corporate = await buildParty(app, account, 'corporate')
  doctor = await buildParty(app, account, 'doctor')
  tests = []
  for (let n = 0; n < 40; n++) tests.push(await buildTest(app, lab, { name: `Test number ${n}`, code: `N${n}` }))
  await setTestPrice(app, corporate, tests[0]!, 99)
  pack = await buildPackage(app, lab, [tests[0]!, tests[1]!])
})
afterAll(async () => {
  await other.close()
  await app.close()
})

const TESTS = '/client/crm/tests'
const PACKAGES = '/client/crm/packages'

function list(
  path: string,
  headers: Record<string, string> = {},
  party: object = { corporateUser: corporate.id },
  of = app,
) {
  return of.call('GET', path, { token: account.token, query: { branchID: lab.id, ...party }, headers })
}

/** Decodes what it asks for. */
function fetchList(encoding: string, headers: Record<string, string> = {}, labID = lab.id) {
  return fetch(`http://127.0.0.1:${app.port}${TESTS}?branchID=${labID}&corporateUser=${corporate.id}`, {
    headers: { authorization: `Bearer ${account.token}`, 'accept-encoding': encoding, ...headers },
  })
}

describe.each([TESTS, PACKAGES])('%s', (path) => {
  test('answers 304 without a body to whoever has the list already, and counts the call', async () => {
    const first = await list(path)
    expect(first.headers['cache-control']).toBe('private, no-cache')
    const again = await list(path, { 'if-none-match': first.headers.etag as string })
    expect([again.status, again.body, again.headers.etag]).toEqual([304, undefined, first.headers.etag])
    expect(again.headers['content-type']).toBeUndefined()
    const left = (answer: { headers: object }) =>
      Number(/r=(\d+)/.exec((answer.headers as Record<string, string>).ratelimit!)![1])
    expect(left(again)).toBe(left(first) - 1)
    expect((await list(path, { 'if-none-match': `"other", W/${first.headers.etag}` })).status).toBe(304)
    expect((await list(path, { 'if-none-match': '"other"' })).status).toBe(200)
  })

  test('judges token, party, lab and budget before a validator', async () => {
    const { etag } = (await list(path)).headers as { etag: string }
    const stranger = await buildAccount(app, { mode: 'party_scoped' })
    const query = { branchID: lab.id, corporateUser: corporate.id }
    const headers = { 'if-none-match': etag }
    expect((await app.call('GET', path, { token: stranger.token, query, headers })).status).toBe(403)
    expect((await app.call('GET', path, { query, headers })).status).toBe(401)
    expect((await list(path, { 'if-none-match': '*' }, {})).status).toBe(400)
  })
})

test("another party's validator gets the prices of the caller's own", async () => {
  const { etag } = (await list(TESTS)).headers as { etag: string }
  const answer = await list(TESTS, { 'if-none-match': etag }, { organization: doctor.id })
  expect([answer.status, answer.body.tests[0].cost]).toEqual([200, 350])
})

test('each process has the same validator for the same list', async () => {
  expect((await list(TESTS, {}, undefined, other)).headers.etag).toBe((await list(TESTS)).headers.etag)
})

describe('after its change has answered, no process and no validator gives the old list:', () => {
  const patch = (path: string, body: object) => app.call('PATCH', path, { token: operator, body })
  const put = (body: object) => app.call('PUT', `/operator/labs/${lab.id}/party-prices`, { token: operator, body })

  async function seeBoth(path: string) {
    const answers = [await list(path), await list(path, {}, undefined, other)]
    return answers.map(({ headers }) => headers.etag as string)
  }

  const labPath = () => `/operator/labs/${lab.id}`
  const changes: [string, string, () => Promise<{ status: number }>][] = [
    ['a price is set', TESTS, () => put({ partyId: corporate.id, test: tests[2]!.id, price: 12.5 })],
    ['a price is set again', TESTS, () => put({ partyId: corporate.id, test: tests[2]!.id, price: 13 })],
    [
      'a price is removed',
      TESTS,
      () => app.call('DELETE', `${labPath()}/party-prices`, { token: operator, query: { partyId: corporate.id, test: tests[2]!.id } }),
    ],
    ['a standard price is changed', TESTS, () => patch(`${labPath()}/tests/${tests[3]!.id}`, { cost: 17 })],
    ['a test is made inactive', TESTS, () => patch(`${labPath()}/tests/${tests[4]!.id}`, { active: false })],
    ['a test is removed', TESTS, () => app.call('DELETE', `${labPath()}/tests/${tests[5]!.id}`, { token: operator })],
    [
      'a test is added',
      TESTS,
      () => app.call('POST', `${labPath()}/tests`, { token: operator, body: { name: 'New', code: 'NEW', cost: 1 } }),
    ],
    ['a test in a package gets another name', PACKAGES, () => patch(`${labPath()}/tests/${tests[0]!.id}`, { name: 'Renamed' })],
    ['a package is changed', PACKAGES, () => patch(`${labPath()}/packages/${pack.id}`, { total: 5 })],
    ['a package has other tests', PACKAGES, () => patch(`${labPath()}/packages/${pack.id}`, { tests: [tests[7]!.id] })],
    ['a price of a package is set', PACKAGES, () => put({ partyId: corporate.id, package: pack.id, price: 3 })],
    ['a package is added', PACKAGES, () => app.call('POST', `${labPath()}/packages`, { token: operator, body: { name: 'P', code: 'PNEW', total: 1, tests: [tests[0]!.id] } })],
    ['a package is removed', PACKAGES, () => app.call('DELETE', `${labPath()}/packages/${pack.id}`, { token: operator })],
  ] // prettier-ignore

  test.each(changes)('%s', async (_, path, change) => {
    const before = await seeBoth(path)
    expect([200, 201]).toContain((await change()).status)
    const after = await Promise.all(
      [app, other].map((of, n) => list(path, { 'if-none-match': before[n]! }, undefined, of)),
    )
    expect(after.map(({ status }) => status)).toEqual([200, 200])
    expect(after[0]!.body).toEqual(after[1]!.body)
  })

  test('an import is committed', async () => {
    const begun = await app.call('POST', `${labPath()}/imports`, { token: operator, body: { kind: 'party_prices' } })
    const path = `${labPath()}/imports/${begun.body.importId}`
    const rows = [{ line: 2, cells: { partyId: corporate.id, test: 'N9', price: '77' } }]
    const filled = await app.call('PUT', `${path}/rows`, { token: operator, body: { rows } })
    const before = await seeBoth(TESTS)
    const committed = await app.call('POST', `${path}/commit`, { token: operator, body: { rows: 1 } })
    expect([begun.status, filled.status, committed.status]).toEqual([201, 200, 200])
    const after = await list(TESTS, { 'if-none-match': before[1]! }, undefined, other)
    expect(after.body.tests.find((row: { code: string }) => row.code === 'N9').cost).toBe(77)
  })

  test('while others read all the time', async () => {
    let isOver = false
    const readers = [app, other].map(async (of) => {
      while (!isOver) await list(TESTS, {}, undefined, of)
    })
    for (let price = 1; price <= 15; price++) {
      await put({ partyId: corporate.id, test: tests[8]!.id, price })
      const seen = await Promise.all([app, other].map((of) => list(TESTS, {}, undefined, of)))
      const costs = seen.map(({ body }) => body.tests.find((row: { code: string }) => row.code === 'N8').cost)
      expect(costs).toEqual([price, price])
    }
    isOver = true
    await Promise.all(readers)
  })
})

describe('compression', () => {
  test.each(['gzip', 'br'])('%s has the same list under a validator of its own', async (encoding) => {
    const plain = await fetchList('identity')
    const packed = await fetchList(encoding)
    expect([plain.headers.get('content-encoding'), packed.headers.get('content-encoding')]).toEqual([null, encoding])
    expect(packed.headers.get('vary')).toBe('Authorization, Accept-Encoding')
    expect(await packed.json()).toEqual(await plain.json())
    const etag = packed.headers.get('etag')!
    expect(etag).not.toBe(plain.headers.get('etag'))
    expect((await fetchList(encoding, { 'if-none-match': etag })).status).toBe(304)
    expect((await fetchList('identity', { 'if-none-match': etag })).status).toBe(200)
  })

  test('is what the client wants most, or nothing', async () => {
    const chosen = async (accepted: string) => (await fetchList(accepted)).headers.get('content-encoding')
    expect(await chosen('gzip;q=0.5, br;q=0.2')).toBe('gzip')
    expect(await chosen('deflate, zstd')).toBeNull()
    expect(await chosen('gzip;q=0, br;q=0')).toBeNull()
    expect(await chosen('*')).toBe('br')
  })

  test('leaves a short list as it is, and every other answer', async () => {
    const small = await buildLab(app, account)
    expect((await fetchList('gzip', {}, small.id)).headers.get('content-encoding')).toBeNull()
    const fault = await fetchList('gzip', {}, 'x')
    expect([fault.status, fault.headers.get('content-encoding'), fault.headers.get('cache-control')]).toEqual([
      403,
      null,
      'no-store',
    ])
  })
})
