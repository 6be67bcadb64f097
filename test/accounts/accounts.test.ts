import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { hashSecret } from '../../src/crypto.ts'
import { newId } from '../../src/ids.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { buildAccount, buildOperatorKey } from '../support/builders.ts'

let app: TestApp
let token: string

beforeAll(async () => {
  app = await startTestApp()
  token = await buildOperatorKey(app)
})
afterAll(() => app.close())

const post = (path: string, body?: unknown, key = token) => app.call('POST', path, { token: key, body })

describe('an operator key', () => {
  test('that is unknown, revoked, or of another scheme is 401', async () => {
    const revoked = await buildOperatorKey(app)
    const before = await app.call('GET', '/operator/accounts', { token: revoked })
    const key_hash = hashSecret(revoked)
    await app.database.knex('operator_keys').where({ key_hash }).update({ revoked_at: app.clock.now() })
    const after = await app.call('GET', '/operator/accounts', { token: revoked })
    const unknown = await app.call('GET', '/operator/accounts', { token: 'x' })
    const basic = await app.call('GET', '/operator/accounts', { headers: { authorization: `Basic ${token}` } })
    expect([before, after, unknown, basic].map(({ status }) => status)).toEqual([200, 401, 401, 401])
  })

  test('with another role than admin gets 403', async () => {
    const staff = await buildOperatorKey(app, { role: 'staff' })
    expect((await post('/operator/accounts', { name: 'x', adminEmail: 'a@b.example' }, staff)).status).toBe(403)
  })

  test('bound to an account sees that one only, and learns nothing of others', async () => {
    const own = await buildAccount(app)
    const other = await buildAccount(app)
    const bound = await buildOperatorKey(app, { accountId: own.id })
    const list = await app.call('GET', '/operator/accounts', { token: bound })
    expect(list.body.accounts.map(({ accountId }: { accountId: string }) => accountId)).toEqual([own.id])
    expect((await post('/operator/accounts', { name: 'x', adminEmail: 'a@b.example' }, bound)).status).toBe(403)
    const lab = { name: 'Kothrud', contact: '2025461234' }
    expect((await post(`/operator/accounts/${own.id}/labs`, lab, bound)).status).toBe(201)
    const foreign = await post(`/operator/accounts/${other.id}/labs`, lab, bound)
    const unknown = await post(`/operator/accounts/${newId(0)}/labs`, lab, bound)
    expect([foreign.status, foreign.body.error]).toEqual([404, unknown.body.error])
  })
})

describe('an account', () => {
  test('is catch-all and in India unless said otherwise', async () => {
    const { status, body } = await post('/operator/accounts', { name: 'Arogya', adminEmail: 'a@b.example', role: 'x' })
    expect(status).toBe(201)
    expect(body).toMatchObject({ mode: 'catch_all', timeZone: 'Asia/Kolkata' })
    const list = await app.call('GET', '/operator/accounts', { token })
    expect(list.body.accounts).toContainEqual(body)
  })

  test.each(['Asia/Poona', '+05:30', '-0800'])('with a time zone that does not exist is 400: %s', async (timeZone) => {
    const answer = await post('/operator/accounts', { name: 'x', adminEmail: 'a@b.example', timeZone })
    expect([answer.status, answer.body.error.details]).toEqual([400, `unknown time zone ${timeZone}`])
  })

  test('has one client and at most two valid secrets, also when many are asked for at once', async () => {
    const account = (await post('/operator/accounts', { name: 'x', adminEmail: 'a@b.example' })).body
    const path = `/operator/accounts/${account.accountId}/client-secrets`
    const answers = await Promise.all(Array.from({ length: 16 }, () => post(path)))
    const issued = answers.filter(({ status }) => status === 201).map(({ body }) => body)
    expect(issued).toHaveLength(2)
    expect(answers.filter(({ status }) => status === 409)).toHaveLength(14)
    expect(new Set(issued.map(({ clientID }) => clientID)).size).toBe(1)
    for (const body of issued) expect((await app.call('POST', '/client/auth/token', { body })).status).toBe(200)
  })
})

test('labs and parties made by the operator serve the integrator at once', async () => {
  const account = await buildAccount(app, { mode: 'party_scoped' })
  const lab = (await post(`/operator/accounts/${account.id}/labs`, { name: 'Baner', contact: '2027291234' })).body
  const party = (await post(`/operator/accounts/${account.id}/parties`, { kind: 'doctor', name: 'Dr Rao' })).body
  const labs = await app.call('GET', '/client/labs', { token: account.token })
  expect(labs.body.branches).toEqual([{ branchID: lab.labID, name: 'Baner', contact: '2027291234' }])
  const tests = await app.call('GET', '/client/crm/tests', {
    token: account.token,
    query: { branchID: lab.labID, organization: party.partyId },
  })
  expect(tests.body).toEqual({ tests: [] })
})
