/**
 * Which operations take an `Idempotency-Key`, and what a key may look like.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Lab } from '../src/catalogue/labs-repository.ts'
import { hashValue } from '../src/crypto.ts'
import { isIdempotentOperation } from '../src/idempotency/idempotency-rules.ts'
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
