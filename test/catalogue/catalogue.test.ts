import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import type { Party } from '../../src/catalogue/parties-repository.ts'
import { newId } from '../../src/ids.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import {
  buildAccount,
  buildLab,
  buildOperatorKey,
  buildPackage,
  buildParty,
  buildTest,
  setPackagePrice,
  setTestPrice,
  type TestAccount,
} from '../support/builders.ts'

let app: TestApp
let catchAll: TestAccount
let scoped: TestAccount
let catchAllLab: Lab
let scopedLab: Lab
let corporate: Party
let doctor: Party

beforeAll(async () => {
  app = await startTestApp()
  catchAll = await buildAccount(app)
  scoped = await buildAccount(app, { mode: 'party_scoped' })
  catchAllLab = await buildLab(app, catchAll)
  scopedLab = await buildLab(app, scoped)
  corporate = await buildParty(app, scoped, 'corporate')
  doctor = await buildParty(app, scoped, 'doctor')
})
afterAll(() => app.close())

test('only the active labs of the account are listed', async () => {
  const account = await buildAccount(app)
  const lab = await buildLab(app, account, { name: 'Kothrud' })
  await buildLab(app, account, { active: false })
  const { body } = await app.call('GET', '/client/labs', { token: account.token })
  expect(body).toEqual({ branches: [{ branchID: lab.id, name: 'Kothrud', contact: lab.contact }] })
})

describe.each(['/client/crm/tests', '/client/crm/packages'])('%s', (path) => {
  const list = (account: TestAccount, query: Record<string, string | undefined>) =>
    app.call('GET', path, { token: account.token, query })

  test('needs a lab', async () => {
    expect((await list(catchAll, {})).body.error.details).toBe('branchID is required')
  })

  test('answers a lab of another account like one that does not exist, and an inactive one, with one 403', async () => {
    const inactive = await buildLab(app, catchAll, { active: false })
    const ids = [scopedLab.id, newId(0), inactive.id, 'x', `${catchAllLab.id} `, catchAllLab.id.toUpperCase(), '0']
    const answers = await Promise.all(ids.map((branchID) => list(catchAll, { branchID })))
    expect(answers.map(({ status }) => status)).toEqual(ids.map(() => 403))
    expect(new Set(answers.map(({ body }) => JSON.stringify(body.error))).size).toBe(1)
  })

  test('takes no party from a catch-all account', async () => {
    for (const query of [
      { corporateUser: corporate.id },
      { organization: 'x' },
      { corporateUser: 'x', organization: 'y' },
    ]) {
      const answer = await list(catchAll, { branchID: catchAllLab.id, ...query })
      expect([answer.status, answer.body.error.code]).toEqual([400, 'party_not_allowed'])
    }
  })

  test('takes exactly one party from a party-scoped account', async () => {
    const branchID = scopedLab.id
    const none = await list(scoped, { branchID })
    expect([none.status, none.body.error.code]).toEqual([400, 'party_required'])
    const both = await list(scoped, { branchID, corporateUser: corporate.id, organization: doctor.id })
    expect([both.status, both.body.error.code]).toEqual([400, 'party_ambiguous'])
    expect((await list(scoped, { branchID, corporateUser: corporate.id })).status).toBe(200)
    expect((await list(scoped, { branchID, organization: doctor.id })).status).toBe(200)
  })

  test('judges the party rule before the lab, and the lab before the party', async () => {
    expect((await list(scoped, { branchID: catchAllLab.id })).status).toBe(400)
    expect((await list(scoped, { branchID: catchAllLab.id, corporateUser: 'x' })).status).toBe(403)
  })

  test('names a party that is unknown, of another account, or of another kind', async () => {
    const foreign = await buildParty(app, catchAll, 'corporate')
    const branchID = scopedLab.id
    for (const [field, id] of [
      ['corporateUser', foreign.id],
      ['corporateUser', doctor.id],
      ['organization', corporate.id],
      ['organization', `${doctor.id} `],
      ['organization', "x' OR '1'='1"],
    ] as const) {
      const answer = await list(scoped, { branchID, [field]: id })
      expect([answer.status, answer.body.error.details]).toEqual([400, `unknown ${field} ${id}`])
    }
  })
})

describe('prices', () => {
  test("are the party's where it has one, the standard ones otherwise, and each party has its own", async () => {
    const lab = await buildLab(app, scoped)
    const [cbc, tsh] = [
      await buildTest(app, lab, { name: 'CBC' }),
      await buildTest(app, lab, { name: 'TSH', cost: 280 }),
    ]
    const checkup = await buildPackage(app, lab, [tsh, cbc], { name: 'Checkup' })
    await setTestPrice(app, corporate, cbc, 299.5)
    await setPackagePrice(app, doctor, checkup, 0)
    const prices = async (party: Record<string, string>) => {
      const query = { branchID: lab.id, ...party }
      const { body: tests } = await app.call('GET', '/client/crm/tests', { token: scoped.token, query })
      const { body: packages } = await app.call('GET', '/client/crm/packages', { token: scoped.token, query })
      return [...tests.tests.map((row: { cost: number }) => row.cost), packages.packages[0].total]
    }
    expect(await prices({ corporateUser: corporate.id })).toEqual([299.5, 280, 1899])
    expect(await prices({ organization: doctor.id })).toEqual([350, 280, 0])
  })

  test('are standard on a catch-all account, and lists hold exactly what the specification names', async () => {
    const lab = await buildLab(app, catchAll)
    const cbc = await buildTest(app, lab, { name: 'CBC', code: 'C1', serviceId: 'SRV-1' })
    const tsh = await buildTest(app, lab, { name: 'TSH', code: 'T1', cost: 649.05 })
    const pack = await buildPackage(app, lab, [tsh, cbc], { name: 'Both', code: 'B' })
    const options = { token: catchAll.token, query: { branchID: lab.id } }
    expect((await app.call('GET', '/client/crm/tests', options)).body).toEqual({
      tests: [
        { _id: cbc.id, name: 'CBC', code: 'C1', cost: 350, serviceID: 'SRV-1' },
        { _id: tsh.id, name: 'TSH', code: 'T1', cost: 649.05 },
      ],
    })
    const tests = [
      { test: tsh.id, name: 'TSH' },
      { test: cbc.id, name: 'CBC' },
    ]
    expect((await app.call('GET', '/client/crm/packages', options)).body).toEqual({
      packages: [{ _id: pack.id, name: 'Both', code: 'B', total: 1899, tests }],
    })
  })
})

describe('the catalogue that the operator keeps', () => {
  let token: string
  beforeAll(async () => {
    token = await buildOperatorKey(app)
  })
  const post = (path: string, body: unknown) => app.call('POST', path, { token, body })
  const testBody = (fields: object = {}) => ({ name: 'CBC', code: 'CBC', cost: 350, ...fields })

  test('has a code and a serviceID once in a lab, also when 16 ask at once', async () => {
    const path = `/operator/labs/${(await buildLab(app, scoped)).id}/tests`
    const answers = await Promise.all(Array.from({ length: 16 }, () => post(path, testBody({ serviceID: 'S1' }))))
    expect(answers.map(({ status }) => status).sort()).toEqual([201, ...Array(15).fill(409)])
    const sameService = await post(path, testBody({ code: 'other', serviceID: 'S1' }))
    expect([sameService.status, sameService.body.error.code]).toEqual([409, 'duplicate_service_id'])
    expect((await post(path, testBody({ code: 'cbc' }))).status).toBe(201)
    expect((await post(`/operator/labs/${(await buildLab(app, scoped)).id}/tests`, testBody())).status).toBe(201)
  })

  test.each([-1, 0.001, 1.005, 1e10, 9999999999.991])('refuses %d as a price', async (cost) => {
    const answer = await post(`/operator/labs/${scopedLab.id}/tests`, testBody({ code: 'priced', cost }))
    expect([answer.status, answer.body.error.fields[0].field]).toEqual([400, 'cost'])
  })

  test('gives back every price as it was set', async () => {
    const lab = await buildLab(app, catchAll)
    const costs = [0, 0.01, 0.07, 0.1, 0.29, 1.15, 4.35, 19.99, 1005.55, 64949.05, 8388608.13, 9999999999.99]
    for (const cost of costs) {
      const answer = await post(`/operator/labs/${lab.id}/tests`, testBody({ code: `c${cost}`, cost }))
      expect([answer.status, answer.body.cost]).toEqual([201, cost])
    }
    const { body } = await app.call('GET', '/client/crm/tests', { token: catchAll.token, query: { branchID: lab.id } })
    expect(body.tests.map((row: { cost: number }) => row.cost).sort((a: number, b: number) => a - b)).toEqual(costs)
  })

  test('puts only tests of the lab into a package, each once, in order', async () => {
    const lab = await buildLab(app, scoped)
    const [first, second, foreign] = [
      await buildTest(app, lab),
      await buildTest(app, lab),
      await buildTest(app, scopedLab),
    ]
    const body = { name: 'P', code: 'P', total: 10, tests: [second.id, first.id, second.id] }
    const made = await post(`/operator/labs/${lab.id}/packages`, body)
    expect(made.body.tests.map((row: { test: string }) => row.test)).toEqual([second.id, first.id])
    expect((await post(`/operator/labs/${lab.id}/packages`, body)).body.error.code).toBe('duplicate_code')
    const other = await post(`/operator/labs/${lab.id}/packages`, { ...body, code: 'Q', tests: [first.id, foreign.id] })
    expect(other.body.error).toMatchObject({ code: 'unknown_test', fields: [{ field: 'tests.1' }] })
  })

  test('takes a price for exactly one test or package of the lab and a party of its account', async () => {
    const cbc = await buildTest(app, scopedLab)
    const elsewhere = await buildTest(app, await buildLab(app, scoped))
    const foreign = await buildParty(app, catchAll, 'corporate')
    const put = (body: object) =>
      app.call('PUT', `/operator/labs/${scopedLab.id}/party-prices`, { token, body: { price: 1, ...body } })
    expect((await put({ partyId: corporate.id, test: cbc.id })).status).toBe(200)
    const again = await put({ partyId: corporate.id, test: cbc.id, price: 2.5 })
    expect(again.body).toEqual({ labID: scopedLab.id, partyId: corporate.id, test: cbc.id, price: 2.5 })
    for (const body of [
      { partyId: corporate.id },
      { partyId: corporate.id, test: cbc.id, package: 'x' },
      { partyId: corporate.id, test: elsewhere.id },
      { partyId: corporate.id, package: cbc.id },
      { partyId: foreign.id, test: cbc.id },
    ]) {
      expect((await put(body)).status).toBe(400)
    }
    expect((await post('/operator/labs/x/tests', testBody())).status).toBe(404)
  })
})
