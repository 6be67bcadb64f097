/**
 * Which operations take an `Idempotency-Key`, and what a key may look like.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Lab } from '../src/catalogue/labs-repository.ts'
import { hashValue } from '../src/crypto.ts'
import { formerHash, isIdempotentOperation } from '../src/idempotency/idempotency-rules.ts'
import { client, startTestApp, type TestApp } from './support/app.ts'
import { buildAccount, buildLab, leadBody, type TestAccount } from './support/builders.ts'

let app: TestApp
let account: TestAccount
let lab: Lab

beforeAll(async () => {
  app = await startTestApp()
  account = await buildAccount(app)
  lab = await buildLab(app, account)
})
afterAll(() => app.close())

const createLead = (key: string, body: Record<string, unknown>) =>
  app.call('POST', '/client/crm/lead/create', { token: account.token, body, headers: { 'idempotency-key': key } })
const findKeyRows = (key: string) => app.database.knex('idempotency_keys').where({ key_hash: hashValue(key) })

test('the operations with a key are those of the contract', () => {
  const parameter = '#/components/parameters/IdempotencyKey'
  for (const operation of client.operations) {
    const { parameters = [] } = operation as { parameters?: { $ref?: string }[] }
    const isInContract = parameters.some(({ $ref }) => $ref === parameter)
    expect([operation.operationId, isIdempotentOperation(operation.operationId)]).toEqual([
      operation.operationId,
      isInContract,
    ])
  }
})

test.each([
  ['empty', ''],
  ['blank inside', 'two words'],
  ['longer than 255', 'k'.repeat(256)],
  ['not ASCII', 'sch\u00fcssel'],
])('a key that is %s is 400, and is not kept', async (_, key) => {
  const answer = await createLead(key, leadBody(lab))
  expect([answer.status, answer.body.error.fields[0].field]).toEqual([400, 'Idempotency-Key'])
  expect(await findKeyRows(key)).toEqual([])
})

test('a key of 255 characters serves', async () => {
  const key = 'k'.repeat(255)
  const body = leadBody(lab)
  expect((await createLead(key, body)).status).toBe(200)
  expect((await createLead(key, body)).headers['idempotent-replayed']).toBe('true')
})

test.each([
  ['no JSON', '{"branchID": '],
  ['no object', '[1]'],
  ['no UTF-8', Buffer.from([0x7b, 0xff, 0x7d])],
  ['over a limit', JSON.stringify({ first_name: 'a'.repeat(4097) })],
  ['with a name twice', '{"first_name": "a", "first_name": "b"}'],
])('the refusal of a body that is %s is kept as well', async (what, rawBody) => {
  const key = `unsound-${what.replaceAll(' ', '-')}`
  const headers = { 'idempotency-key': key, 'content-type': 'application/json' }
  const send = () => app.call('POST', '/client/crm/lead/create', { token: account.token, rawBody, headers })
  const [first, again] = [await send(), await send()]
  expect([first.status, first.headers['idempotent-replayed']]).toEqual([400, undefined])
  expect([again.status, again.headers['idempotent-replayed']]).toEqual([400, 'true'])
  expect(again.body.error).toEqual(first.body.error)
  const sound = await createLead(key, leadBody(lab))
  expect([sound.status, sound.body.error.code]).toEqual([422, 'idempotency_mismatch'])
})

test('a body of another type, or too large, says nothing of its key', async () => {
  const call = (rawBody: string, type: string, key: string) => {
    const headers = { 'idempotency-key': key, 'content-type': type }
    return app.call('POST', '/client/crm/lead/create', { token: account.token, rawBody, headers })
  }
  expect((await call('a=b', 'application/x-www-form-urlencoded', 'typed')).status).toBe(415)
  expect((await call(`{"x":"${'a'.repeat(262_144)}"}`, 'application/json', 'large')).status).toBe(413)
  for (const key of ['typed', 'large']) expect((await createLead(key, leadBody(lab))).status).toBe(200)
})

test('a key that a version before has kept serves on', async () => {
  const [key, body] = ['from-before', leadBody(lab)]
  const first = await createLead(key, body)
  const former = formerHash({ body, path: {}, query: {} })
  await findKeyRows(key).update({ body_hash: former })
  const again = await createLead(key, body)
  expect([again.status, again.body, again.headers['idempotent-replayed']]).toEqual([200, first.body, 'true'])
  expect((await createLead(key, leadBody(lab, { first_name: 'Another' }))).status).toBe(422)
})
