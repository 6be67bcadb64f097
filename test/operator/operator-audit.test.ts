import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { newId } from '../../src/ids.ts'
import { operator, startTestApp, type TestApp } from '../support/app.ts'
import { buildAccount, buildOperatorKey, nextNumber } from '../support/builders.ts'
import {
  buildOperatorWorld,
  DELIVERY_CALLS,
  KEEPING_CALLS,
  type MakeCall,
  type OperatorWorld,
} from '../support/operator-calls.ts'
import { STAFF_CALLS } from '../support/staff-calls.ts'

const CALLS: Record<string, MakeCall> = { ...KEEPING_CALLS, ...STAFF_CALLS, ...DELIVERY_CALLS }
const changing = operator.operations.filter(({ method }) => method !== 'GET')

let app: TestApp
let token: string
let world: OperatorWorld

beforeAll(async () => {
  app = await startTestApp()
  // Deliveries are judged by the database's clock, which is the real one.
  app.clock.set(new Date(await app.database.readTimeMs()).toISOString())
  token = await buildOperatorKey(app)
  world = await buildOperatorWorld(app, token)
})
afterAll(() => app.close())

const entriesOf = async (requestId: string) => app.database.knex('audit_entries').where({ request_id: requestId })
const list = (query: Record<string, string>, key = token) =>
  app.call('GET', '/operator/audit-entries', { token: key, query })

test('every changing operation of the contract has a valid call to be judged by', () => {
  const missing = changing
    .filter(({ operationId }) => !CALLS[operationId])
    .map(({ operationId }) => `${operationId} has no call in test/support/operator-calls.ts: add one`)
  expect(missing).toEqual([])
  const known = changing.map(({ operationId }) => operationId)
  expect(Object.keys(CALLS).filter((operationId) => !known.includes(operationId))).toEqual([])
})

describe('a call that changed something leaves exactly one audit entry:', () => {
  test.each(Object.keys(CALLS))('%s', async (operationId) => {
    const { method } = changing.find((known) => known.operationId === operationId)!
    const { path, headers, ...call } = await CALLS[operationId]!(world)
    const requestId = `audited-${nextNumber()}`
    const answer = await app.call(method, path, {
      token,
      headers: { 'x-request-id': requestId, ...headers },
      ...call,
    })
    expect([200, 201], JSON.stringify(answer.body)).toContain(answer.status)
    const entries = await entriesOf(requestId)
    expect(entries.map(({ operation }) => operation)).toEqual([operationId])
    const targets = JSON.parse(entries[0].targets) as Record<string, string>
    expect(Object.keys(targets).length).toBeGreaterThan(0)
    // Ids and nothing else: no name, contact or amount of anybody.
    for (const id of Object.values(targets)) expect(id).toMatch(/^(evt_)?[0-9a-z]{26}$/)
  })
})

test('a call that was refused leaves none', async () => {
  const headers = { 'x-request-id': 'refused-1' }
  const sameCode = { name: 'x', code: world.test.code, cost: 1 }
  const path = `/operator/labs/${world.lab.id}/tests`
  expect((await app.call('POST', path, { token, headers, body: sameCode })).status).toBe(409)
  expect((await app.call('DELETE', `${path}/${world.test.id}`, { token, headers })).status).toBe(409)
  expect(await entriesOf('refused-1')).toEqual([])
})

test('the list is narrowed by account, key, operation and time, the newest first, page by page', async () => {
  const account = await buildAccount(app)
  const path = `/operator/accounts/${account.id}`
  for (const name of ['a', 'b', 'c']) {
    app.clock.advance(1000)
    await app.call('PATCH', path, { token, body: { name } })
  }
  const until = new Date(app.clock.nowMs())
  app.clock.advance(1000)
  await app.call('POST', `${path}/labs`, { token, body: { name: 'x', contact: '1' } })
  const all = (await list({ accountId: account.id })).body.auditEntries
  expect(all.map(({ operation }: any) => operation)).toEqual([
    'createLab',
    'updateAccount',
    'updateAccount',
    'updateAccount',
  ])
  const query = { accountId: account.id, operation: 'updateAccount', limit: '2' }
  const first = (await list(query)).body
  const second = (await list({ ...query, cursor: first.nextCursor })).body
  expect([...first.auditEntries, ...second.auditEntries]).toEqual(all.slice(1))
  expect([first.auditEntries.length, second.nextCursor]).toEqual([2, null])
  const from = new Date(until.getTime() - 1000).toISOString()
  const between = await list({ accountId: account.id, from, to: until.toISOString() })
  expect(between.body.auditEntries).toEqual([all[2]])
  for (const to of ['9999-12-31T23:59:59-01:00', '1969-12-31T23:59:59Z', '2026-11-20'])
    expect((await list({ to })).status).toBe(400)
  expect((await list({ accountId: account.id, keyId: all[0].keyId })).body.auditEntries).toEqual(all)
  expect((await list({ accountId: account.id, keyId: newId(0) })).body.auditEntries).toEqual([])
  expect((await list({ accountId: 'é' })).body.auditEntries).toEqual([])
  expect((await list({ operation: 'é' })).body.auditEntries).toEqual([])
})

test('a key that is bound to an account reads the entries of that one alone, and staff read none', async () => {
  const own = await buildAccount(app)
  const bound = await buildOperatorKey(app, { accountId: own.id })
  await app.call('PATCH', `/operator/accounts/${own.id}`, { token: bound, body: { name: 'x' } })
  const { body } = await list({}, bound)
  expect(body.auditEntries.map(({ accountId }: any) => accountId)).toEqual([own.id])
  expect((await list({ accountId: world.account.id }, bound)).body.auditEntries).toEqual([])
  expect((await list({}, await buildOperatorKey(app, { role: 'staff' }))).status).toBe(403)
})

test('a cursor or a time that is none is 400', async () => {
  const cursor = Buffer.from('["é"]').toString('base64url')
  const queries: Record<string, string>[] = [
    { cursor: 'x' },
    { cursor },
    { from: 'yesterday' },
    { to: '2026-12-31T23:59:60Z' },
  ]
  for (const query of queries) {
    expect((await list(query)).status).toBe(400)
  }
})
