import { setTimeout } from 'node:timers/promises'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import { newId } from '../../src/ids.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { countAudited } from '../support/audited.ts'
import {
  bookingBody,
  buildAccount,
  buildLab,
  buildOperatorKey,
  buildPackage,
  buildParty,
  buildTest,
  leadBody,
  setPackagePrice,
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
  account = await buildAccount(app)
})
afterAll(() => app.close())
beforeEach(async () => {
  lab = await buildLab(app, account)
})

const call = (method: string, path: string, body?: unknown, query: Record<string, string> = {}) =>
  app.call(method, `/operator/labs/${lab.id}${path}`, { token, body, query })
const listed = async (what: 'tests' | 'packages', query: Record<string, string> = {}) =>
  (await call('GET', `/${what}`, undefined, query)).body[what]
const ofIntegrator = async (what: 'tests' | 'packages') => {
  const answer = await app.call('GET', `/client/crm/${what}`, { token: account.token, query: { branchID: lab.id } })
  return answer.body[what].map(({ _id }: any) => _id)
}

/** Calls that all have seen the row and then wait for it, in this order. */
async function inTurn(table: 'tests' | 'packages', id: string, calls: (() => ReturnType<typeof call>)[]) {
  const holder = await app.database.knex.transaction()
  await holder(table).where({ id }).forUpdate().first()
  const answers = []
  for (const make of calls) {
    answers.push(make())
    await setTimeout(50)
  }
  await holder.rollback()
  return Promise.all(answers)
}

const createEntry = (body: unknown) => app.call('POST', '/client/crm/lead/create', { token: account.token, body })

describe('tests of a lab', () => {
  test('are listed page by page, by the beginning of name or code, and by whether they are active', async () => {
    const made = []
    for (const [name, code, active] of [
      ['Complete Blood Count', 'CBC', true],
      ['complete Urine', 'CUE', false],
      ['100% Profile', 'P_1', true],
      ['1000 Profile', 'PX1', true],
    ] as const) {
      app.clock.advance(1)
      made.push((await buildTest(app, lab, { name, code, active })).id)
    }
    const ids = async (query: Record<string, string>) => (await listed('tests', query)).map(({ testId }: any) => testId)
    const first = (await call('GET', '/tests', undefined, { limit: '3' })).body
    expect(first.tests.map(({ testId }: any) => testId)).toEqual(made.slice(0, 3))
    expect(await ids({ cursor: first.nextCursor })).toEqual(made.slice(3))
    expect(await ids({ name: 'complete' })).toEqual(made.slice(0, 2))
    expect(await ids({ name: '100%' })).toEqual([made[2]])
    expect(await ids({ code: 'p_' })).toEqual([made[2]])
    expect([await ids({ active: 'false' }), await ids({ name: 'COMPLETE', active: 'true' })]).toEqual([
      [made[1]],
      [made[0]],
    ])
  })

  test('change in what is sent; a code or serviceID that another test has is refused', async () => {
    await buildTest(app, lab, { code: 'TAKEN', serviceId: 'S-1' })
    const { id } = await buildTest(app, lab, { code: 'CBC', serviceId: 'S-2' })
    const path = `/tests/${id}`
    const before = (await call('PATCH', path, {})).body
    const changed = await call('PATCH', path, { cost: 375.5, name: 'CBC' })
    expect(changed.body).toEqual({ ...before, cost: 375.5, name: 'CBC' })
    const { serviceID: _, ...without } = changed.body
    expect((await call('PATCH', path, { serviceID: null })).body).toEqual(without)
    const code = await call('PATCH', path, { code: 'TAKEN' })
    const service = await call('PATCH', path, { serviceID: 'S-1' })
    expect([code, service].map(({ status, body }) => [status, body.error.code])).toEqual([
      [409, 'duplicate_code'],
      [409, 'duplicate_service_id'],
    ])
    expect((await call('PATCH', path, { cost: 1.005 })).status).toBe(400)
    expect(await listed('tests', { code: 'CBC' })).toEqual([without])
  })

  test('that are inactive are neither listed nor ordered, and packages that contain them are', async () => {
    const { id } = await buildTest(app, lab)
    const pack = await buildPackage(app, lab, [await buildTest(app, lab, { id: newId(1) })])
    await call('PATCH', `/packages/${pack.id}`, { tests: [id] })
    expect(await ofIntegrator('tests')).toContain(id)
    await call('PATCH', `/tests/${id}`, { active: false })
    expect(await ofIntegrator('tests')).not.toContain(id)
    const refused = await createEntry(leadBody(lab, { tests: [{ test: id }] }))
    expect([refused.status, refused.body.error.code]).toEqual([400, 'unknown_test'])
    expect((await createEntry(bookingBody(lab, { packages: [{ package: pack.id }] }))).status).toBe(200)
    await call('PATCH', `/tests/${id}`, { active: true })
    expect((await createEntry(leadBody(lab, { tests: [{ test: id }] }))).status).toBe(200)
  })

  test('are removed with their prices, and their code and serviceID are free; entries keep their name', async () => {
    const gone = await buildTest(app, lab, { code: 'CBC', serviceId: 'S-1', name: 'Blood Count' })
    const party = await buildParty(app, account, 'corporate')
    await setTestPrice(app, party, gone, 1)
    const { leadId } = (await createEntry(leadBody(lab, { tests: [{ test: gone.id }] }))).body
    expect((await call('DELETE', `/tests/${gone.id}`)).body).toMatchObject({ code: 'CBC', active: false })
    expect([await listed('tests'), await ofIntegrator('tests')]).toEqual([[], []])
    expect((await call('GET', '/party-prices')).body.prices).toEqual([])
    const late = [
      await call('DELETE', `/tests/${gone.id}`),
      await call('PATCH', `/tests/${gone.id}`, { active: true }),
      await call('PUT', '/party-prices', { partyId: party.id, test: gone.id, price: 1 }),
      await call('POST', '/packages', { name: 'x', code: 'x', total: 1, tests: [gone.id] }),
      await createEntry(leadBody(lab, { tests: [{ test: gone.id }] })),
    ]
    expect(late.map(({ status }) => status)).toEqual([404, 404, 400, 400, 400])
    expect((await call('POST', '/tests', { name: 'New', code: 'CBC', cost: 1, serviceID: 'S-1' })).status).toBe(201)
    const items = await app.database.knex('entry_items').where({ entry_id: leadId })
    expect(items.map(({ name }) => name)).toEqual(['Blood Count'])
  })

  test('are removed also where another one has their id for its code, and nobody can ask for the code of a removed one', async () => {
    const [gone, kept] = [await buildTest(app, lab, { code: 'A' }), await buildTest(app, lab, { code: 'B' })]
    const pack = await buildPackage(app, lab, [kept], { code: 'P' })
    const create = async (code: string) => [
      (await call('POST', '/tests', { name: 'x', code, cost: 1 })).status,
      (await call('POST', '/packages', { name: 'x', code, total: 1, tests: [kept.id] })).status,
    ]
    expect([await create(gone.id), await create(pack.id)]).toEqual([[201, 201], [201, 201]]) // prettier-ignore
    expect((await call('DELETE', `/tests/${gone.id}`)).body).toMatchObject({ testId: gone.id, code: 'A' })
    expect((await call('DELETE', `/packages/${pack.id}`)).body).toMatchObject({ packageId: pack.id, code: 'P' })
    const removed = await app.database.knex('tests').where({ id: gone.id }).first('code')
    expect([removed.code, await create(removed.code)]).toEqual([`\0${gone.id}`, [400, 400]])
  })

  test('leave their id free as a code, also for an import', async () => {
    const [a, b] = [await buildTest(app, lab), await buildTest(app, lab)]
    for (const { id } of [a, b]) await call('DELETE', `/tests/${id}`)
    expect((await call('POST', '/tests', { name: 'x', code: a.id, cost: 1 })).status).toBe(201)
    const path = `/imports/${(await call('POST', '/imports', { kind: 'tests' })).body.importId}`
    await call('PUT', `${path}/rows`, { rows: [{ line: 2, cells: { code: b.id, name: 'x', cost: '1' } }] })
    expect((await call('POST', `${path}/commit`, { rows: 1 })).body).toMatchObject({ state: 'committed', created: 1 })
  })

  test('that a package contains are removed only once it does not, also when both happen at once', async () => {
    const [a, b] = [await buildTest(app, lab), await buildTest(app, lab)]
    const pack = await buildPackage(app, lab, [a, b], { code: 'FBC' })
    const refused = await call('DELETE', `/tests/${a.id}`)
    expect([refused.status, refused.body.error.code]).toEqual([409, 'test_in_use'])
    expect(refused.body.error.details).toContain('the package FBC contains this test')
    await call('PATCH', `/packages/${pack.id}`, { tests: [b.id] })
    const [removed, repacked] = await Promise.all([
      call('DELETE', `/tests/${a.id}`),
      call('PATCH', `/packages/${pack.id}`, { tests: [a.id, b.id] }),
    ])
    expect([
      [200, 400],
      [409, 200],
    ]).toContainEqual([removed.status, repacked.status])
    await call('DELETE', `/packages/${pack.id}`)
    expect((await call('DELETE', `/tests/${b.id}`)).status).toBe(200)
  })

  test('that are removed by many calls at once are removed by one; a change that comes behind it finds none', async () => {
    const { id } = await buildTest(app, lab, { code: 'CBC' })
    const path = `/tests/${id}`
    const answers = await inTurn('tests', id, [
      ...Array.from({ length: 4 }, () => () => call('DELETE', path)),
      () => call('PATCH', path, { cost: 1 }),
    ])
    expect(answers.map(({ status }) => status)).toEqual([200, 404, 404, 404, 404])
    expect(answers[0]!.body).toMatchObject({ code: 'CBC', active: false })
    expect([await countAudited(app, 'removeTest', id), await countAudited(app, 'updateTest', id)]).toEqual([1, 0])
  })

  test('of another lab are unknown, and staff can only read', async () => {
    const elsewhere = await buildTest(app, await buildLab(app, account))
    for (const id of [elsewhere.id, newId(0), 'x']) {
      expect((await call('PATCH', `/tests/${id}`, { cost: 1 })).status).toBe(404)
      expect((await call('DELETE', `/packages/${id}`)).status).toBe(404)
    }
    const staff = await buildOperatorKey(app, { role: 'staff' })
    const as = (method: string, path: string, body?: unknown) =>
      app.call(method, `/operator/labs/${lab.id}${path}`, { token: staff, body })
    const own = await buildTest(app, lab)
    expect((await as('GET', '/tests')).status).toBe(200)
    expect((await as('PATCH', `/tests/${own.id}`, { cost: 1 })).status).toBe(403)
    expect((await as('DELETE', `/tests/${own.id}`)).status).toBe(403)
  })
})

describe('packages of a lab', () => {
  test('change in what is sent, their tests in order; two changes at once leave one of them', async () => {
    const [a, b, c] = [await buildTest(app, lab), await buildTest(app, lab), await buildTest(app, lab)]
    const pack = await buildPackage(app, lab, [a], { code: 'FBC' })
    const path = `/packages/${pack.id}`
    const changed = (await call('PATCH', path, { total: 99, tests: [c.id, a.id, c.id] })).body
    expect(changed).toMatchObject({ code: 'FBC', total: 99, tests: [{ test: c.id }, { test: a.id }] })
    expect((await call('PATCH', path, { name: 'Full Body' })).body).toEqual({ ...changed, name: 'Full Body' })
    const unknown = await call('PATCH', path, { tests: [a.id, newId(0)] })
    expect(unknown.body.error.fields).toEqual([{ field: 'tests.1', message: 'is unknown' }])
    await Promise.all([call('PATCH', path, { tests: [a.id, b.id] }), call('PATCH', path, { tests: [b.id, c.id] })])
    const [row] = await listed('packages')
    const ids = row.tests.map(({ test: id }: any) => id)
    expect([
      [a.id, b.id],
      [b.id, c.id],
    ]).toContainEqual(ids)
    await buildPackage(app, lab, [a], { code: 'TAKEN' })
    expect((await call('PATCH', path, { code: 'TAKEN' })).body.error.code).toBe('duplicate_code')
  })

  test('that are inactive or removed can be ordered no more; the code of a removed one is free', async () => {
    const pack = await buildPackage(app, lab, [await buildTest(app, lab)], { code: 'FBC' })
    const order = async () => (await createEntry(leadBody(lab, { packages: [{ package: pack.id }] }))).status
    expect([await order(), await ofIntegrator('packages')]).toEqual([200, [pack.id]])
    await call('PATCH', `/packages/${pack.id}`, { active: false })
    expect([await order(), await ofIntegrator('packages')]).toEqual([400, []])
    expect(await listed('packages', { active: 'false', code: 'fb' })).toMatchObject([{ packageId: pack.id }])
    const removed = await call('DELETE', `/packages/${pack.id}`)
    expect(removed.body).toMatchObject({ code: 'FBC', active: false, tests: [{}] })
    expect(await listed('packages')).toEqual([])
    await buildPackage(app, lab, [await buildTest(app, lab)], { code: 'FBC' })
    expect(await listed('packages')).toHaveLength(1)
  })

  test('that are removed by many calls at once are removed by one', async () => {
    const { id } = await buildPackage(app, lab, [await buildTest(app, lab)], { code: 'FBC' })
    const answers = await Promise.all(Array.from({ length: 20 }, () => call('DELETE', `/packages/${id}`)))
    expect(answers.map(({ status }) => status).sort()).toEqual([200, ...Array(19).fill(404)])
    expect(answers.find(({ status }) => status === 200)!.body).toMatchObject({ code: 'FBC', tests: [{}] })
    expect(await countAudited(app, 'removePackage', id)).toBe(1)
  })

  test('that are removed while they are changed stay removed, and their code is free', async () => {
    const pack = await buildPackage(app, lab, [await buildTest(app, lab)], { code: 'FBC' })
    const path = `/packages/${pack.id}`
    const [removed, ...late] = await inTurn('packages', pack.id, [
      () => call('DELETE', path),
      () => call('PATCH', path, { code: 'NEW', active: true }),
      () => call('PATCH', path, { code: 'NEW', active: true }),
    ])
    expect([removed!.status, late.map(({ status }) => status)]).toEqual([200, [404, 404]])
    expect([await listed('packages'), await ofIntegrator('packages')]).toEqual([[], []])
    await app.database.knex('packages').where({ id: pack.id }).update({ active: true })
    expect(await ofIntegrator('packages')).toEqual([])
    const body = { name: 'x', code: 'NEW', total: 1, tests: [(await buildTest(app, lab)).id] }
    expect((await call('POST', '/packages', body)).status).toBe(201)
  })
})

describe('prices', () => {
  test('of parties are listed over tests and packages, by party, page by page, and removed', async () => {
    const parties = [await buildParty(app, account, 'corporate'), await buildParty(app, account, 'doctor')]
    const tests = [await buildTest(app, lab), await buildTest(app, lab)]
    const pack = await buildPackage(app, lab, tests)
    for (const party of parties) {
      for (const one of tests) await setTestPrice(app, party, one, 5)
      await setPackagePrice(app, party, pack, 7.5)
    }
    await setTestPrice(app, parties[0]!, await buildTest(app, await buildLab(app, account)), 1)
    const all = (await call('GET', '/party-prices')).body.prices
    expect(all).toHaveLength(6)
    const pages = []
    for (let cursor: string | null | undefined; cursor !== null;) {
      const { body } = await call('GET', '/party-prices', undefined, { limit: '4', ...(cursor ? { cursor } : {}) })
      pages.push(...body.prices)
      cursor = body.nextCursor
    }
    expect(pages).toEqual(all)
    const partyId = parties[1]!.id
    const ofParty = (await call('GET', '/party-prices', undefined, { partyId })).body.prices
    expect(ofParty).toEqual(all.filter((row: any) => row.partyId === partyId))
    const remove = (query: Record<string, string>) => call('DELETE', '/party-prices', undefined, query)
    const removed = await remove({ partyId, package: pack.id })
    expect(removed.body).toEqual({ labID: lab.id, partyId, package: pack.id, price: 7.5 })
    expect((await remove({ partyId, package: pack.id })).status).toBe(404)
    expect((await remove({ partyId: newId(0), test: tests[0]!.id })).status).toBe(404)
    expect((await remove({ partyId })).status).toBe(400)
    expect((await remove({ partyId, test: tests[0]!.id, package: pack.id })).status).toBe(400)
    expect((await call('GET', '/party-prices')).body.prices).toHaveLength(5)
    expect((await call('GET', '/party-prices', undefined, { cursor: 'WyJhIl0' })).status).toBe(400)
  })

  test('that are set while their test or package is removed are refused, and none is left', async () => {
    const party = await buildParty(app, account, 'corporate')
    await app.call('PUT', `/operator/accounts/${account.id}/rate-lists`, { token, body: { rateListTypes: ['Gold'] } })
    const one = await buildTest(app, lab)
    const pack = await buildPackage(app, lab, [await buildTest(app, lab)])
    for (const [table, item] of [
      ['tests', { test: one.id }],
      ['packages', { package: pack.id }],
    ] as const) {
      const [id] = Object.values(item)
      const answers = await inTurn(table, id!, [
        () => call('DELETE', `/${table}/${id}`),
        () => call('PUT', '/party-prices', { partyId: party.id, ...item, price: 1 }),
        () => call('PUT', '/rate-list-prices', { rateListType: 'Gold', ...item, price: 1 }),
      ])
      expect(answers.map(({ status }) => status)).toEqual([200, 400, 400])
    }
    expect((await call('GET', '/party-prices')).body.prices).toEqual([])
    expect((await call('GET', '/rate-list-prices')).body.prices).toEqual([])
  })

  test('of rate lists are listed by list, page by page, and removed', async () => {
    const body = { rateListTypes: ['Corporate', 'Café'] }
    await app.call('PUT', `/operator/accounts/${account.id}/rate-lists`, { token, body })
    const cbc = await buildTest(app, lab)
    const pack = await buildPackage(app, lab, [cbc])
    for (const rateListType of ['Corporate', 'Café']) {
      await call('PUT', '/rate-list-prices', { rateListType, test: cbc.id, price: 1 })
      await call('PUT', '/rate-list-prices', { rateListType, package: pack.id, price: 2 })
    }
    const all = (await call('GET', '/rate-list-prices')).body.prices
    expect(all.map(({ rateListType }: any) => rateListType)).toEqual(['Café', 'Café', 'Corporate', 'Corporate'])
    const first = (await call('GET', '/rate-list-prices', undefined, { limit: '1' })).body
    const rest = (await call('GET', '/rate-list-prices', undefined, { cursor: first.nextCursor })).body
    expect([...first.prices, ...rest.prices]).toEqual(all)
    const ofOne = (await call('GET', '/rate-list-prices', undefined, { rateListType: 'Café' })).body.prices
    expect(ofOne).toEqual(all.slice(0, 2))
    // To the server one with a blank behind it is the same.
    const blank = { rateListType: 'Café ', test: cbc.id }
    expect((await call('DELETE', '/rate-list-prices', undefined, blank)).status).toBe(404)
    expect((await call('GET', '/rate-list-prices', undefined, { rateListType: 'Café ' })).body.prices).toEqual([])
    const query = { rateListType: 'Café', test: cbc.id }
    const answers = [await call('DELETE', '/rate-list-prices', undefined, query)]
    answers.push(await call('DELETE', '/rate-list-prices', undefined, query))
    expect(answers.map(({ status }) => status)).toEqual([200, 404])
    expect((await call('GET', '/rate-list-prices')).body.prices).toHaveLength(3)
  })
})
