/**
 * Proves of the specification:
 * - "the custom-field map (keys must match custom fields configured in CRM settings; arbitrary values)".
 * - "payment method: Allowed values: a payment-gateway value, `UPI`, `Card`, `Cash`."
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import {
  buildAccount,
  buildLab,
  buildOperatorKey,
  leadBody,
  setCrmSettings,
  type TestAccount,
} from '../support/builders.ts'

let app: TestApp
let account: TestAccount
let lab: Lab
let key: string

beforeAll(async () => {
  app = await startTestApp()
  account = await buildAccount(app)
  lab = await buildLab(app, account)
  key = await buildOperatorKey(app)
  await setCrmSettings(app, account, { customFields: ['campaign', 'toString', 'उम्र'], paymentGateways: ['Online'] })
})
afterAll(() => app.close())

const create = (fields: Record<string, unknown>) =>
  app.call('POST', '/client/crm/lead/create', { token: account.token, body: leadBody(lab, fields) })
const nested = (levels: number) => `${'['.repeat(levels)}${']'.repeat(levels)}`
async function storedDetails(leadId: string) {
  const { details } = await app.database.knex('entries').where({ id: leadId }).first('details')
  return JSON.parse(details)
}

describe('custom fields', () => {
  test('may not be called what an entry can’t have', async () => {
    const body = { customFields: ['campaign', '__proto__'] }
    const answer = await app.call('PUT', `/operator/accounts/${account.id}/crm-settings`, { token: key, body })
    expect([answer.status, answer.body.error.fields]).toEqual([400, [{ field: 'customFields.1', message: 'is not allowed' }]]) // prettier-ignore
  })

  test('of the settings are stored with any value, as they are', async () => {
    const customFields = {
      campaign: { deep: [{ nested: null, unknownToAll: 1.5 }], text: 'नमस्ते "x"' },
      toString: false,
      उम्र: [1, 'two', {}],
    }
    // Beyond what a whole number holds exactly: a number all the same, however it is written.
    Object.assign(customFields.campaign, { large: [1e17, -3.1287109084763324e16, 1e300] })
    const { status, body } = await create({ customFields })
    expect(status).toBe(200)
    expect(await storedDetails(body.leadId)).toEqual({ customFields })
    expect(await storedDetails((await create({ customFields: {} })).body.leadId)).toEqual({ customFields: {} })
  })

  test.each([29, 30])(
    'are kept nested %i deep, which with the body and customFields is within 32 levels',
    async (depth) => {
      const customFields = { campaign: JSON.parse(nested(depth)) }
      const { status, body } = await create({ customFields })
      expect(status).toBe(200)
      expect(await storedDetails(body.leadId)).toEqual({ customFields })
      const path = `/operator/accounts/${account.id}/entries/${body.leadId}`
      const shown = await app.call('GET', path, { token: key })
      expect([shown.status, JSON.stringify(shown.body).includes(nested(depth))]).toEqual([200, true])
    },
  )

  test('that make the body one level too deep are 400, and nothing is stored', async () => {
    const before = await app.database.knex('entries').count()
    const answer = await create({ customFields: { campaign: JSON.parse(nested(31)) } })
    expect([answer.status, answer.body.error.fields[0].field]).toEqual([400, 'customFields'])
    expect(await app.database.knex('entries').count()).toEqual(before)
  })

  test('keep a member __proto__ of a value, which is data and changes no prototype', async () => {
    const value = '{"__proto__": {"polluted": 1}, "b": [{"__proto__": null}]}'
    const rawBody = JSON.stringify(leadBody(lab)).replace('}', `,"customFields":{"campaign":${value}}}`)
    const { status, body } = await app.call('POST', '/client/crm/lead/create', { token: account.token, rawBody })
    expect(status).toBe(200)
    const { campaign } = (await storedDetails(body.leadId)).customFields
    expect(Object.hasOwn(campaign, '__proto__') && campaign['__proto__']).toEqual({ polluted: 1 })
    expect(JSON.stringify(campaign.b)).toBe('[{"__proto__":null}]')
    const path = `/operator/accounts/${account.id}/entries/${body.leadId}`
    const shown = await app.call('GET', path, { token: key })
    expect(JSON.stringify(shown.body)).toContain('"__proto__":{"polluted":1}')
    expect(({} as Record<string, unknown>).polluted).toBeUndefined()
  })

  test('that are not in the settings are 400 naming each, and nothing is stored', async () => {
    const before = await app.database.knex('entries').count({ n: '*' }).first()
    const answer = await create({ customFields: { campaign: 1, Campaign: 1, constructor: 2, 'b\nc': 3 } })
    expect([answer.status, answer.body.error.code]).toEqual([400, 'unknown_custom_field'])
    const fields = answer.body.error.fields.map(({ field }: { field: string }) => field)
    expect(fields).toEqual(['customFields.Campaign', 'customFields.constructor', 'customFields.b\ufffdc'])
    expect(answer.body.error.details).toContain('unknown custom field Campaign')
    expect(await app.database.knex('entries').count({ n: '*' }).first()).toEqual(before)
  })

  test('of another account are unknown', async () => {
    const other = await buildAccount(app)
    const body = leadBody(await buildLab(app, other), { customFields: { campaign: 1 } })
    const answer = await app.call('POST', '/client/crm/lead/create', { token: other.token, body })
    expect([answer.status, answer.body.error.code]).toEqual([400, 'unknown_custom_field'])
  })
})

describe('a payment method', () => {
  test.each(['UPI', 'Card', 'Cash', 'Online'])('may be %s', async (paymentMethod) => {
    const { status, body } = await create({ paymentMethod })
    const entry = await app.database.knex('entries').where({ id: body.leadId }).first()
    expect([status, entry.payment_method]).toEqual([200, paymentMethod])
  })

  test.each(['online', 'Cheque', '', 'UPI '])('other than those is 400 naming the allowed ones: "%s"', async (text) => {
    const { status, body } = await create({ paymentMethod: text })
    const message = 'must be one of UPI, Card, Cash, Online'
    expect([status, body.error.details]).toEqual([400, `paymentMethod ${message}`])
    expect(body.error.fields).toEqual([{ field: 'paymentMethod', message }])
  })
})

test('an account with many long gateways gets a 400 that is no longer than the contract says', async () => {
  const other = await buildAccount(app)
  const paymentGateways = Array.from({ length: 100 }, (_, n) => `${n} `.padEnd(64, 'x'))
  await setCrmSettings(app, other, { paymentGateways })
  const body = leadBody(await buildLab(app, other), { paymentMethod: 'nope' })
  const answer = await app.call('POST', '/client/crm/lead/create', { token: other.token, body })
  expect([answer.status, answer.body.error.details.length]).toEqual([400, 4096])
})

describe('the operator', () => {
  const path = (id: string) => `/operator/accounts/${id}/crm-settings`
  const get = async (id: string) => (await app.call('GET', path(id), { token: key })).body
  const put = (id: string, body: unknown) => app.call('PUT', path(id), { token: key, body })
  const defaults = { assignStrategy: 'round_robin', customFields: [], paymentGateways: [] }

  test('gets the defaults where nothing was set, and replaces all settings at once', async () => {
    const { id } = await buildAccount(app)
    expect(await get(id)).toEqual(defaults)
    const settings = {
      assignStrategy: 'least_open',
      customFields: ['b', 'a', 'b'],
      paymentGateways: ['Pay U', 'Pay U'],
    }
    const expected = { assignStrategy: 'least_open', customFields: ['b', 'a'], paymentGateways: ['Pay U'] }
    expect((await put(id, { ...settings, unknown: 1 })).body).toEqual(expected)
    expect(await get(id)).toEqual(expected)
    expect((await put(id, {})).body).toEqual(defaults)
    expect(await get(id)).toEqual(defaults)
  })

  test.each([
    [{ assignStrategy: 'random' }, 'assignStrategy'],
    [{ customFields: [''] }, 'customFields.0'],
    [{ customFields: ['x'.repeat(101)] }, 'customFields.0'],
    [{ paymentGateways: ['Zahlung über Bank'] }, 'paymentGateways.0'],
    [{ paymentGateways: ['x'.repeat(65)] }, 'paymentGateways.0'],
    [{ paymentGateways: 'Online' }, 'paymentGateways'],
  ])('is told which setting is at fault: %j', async (body, field) => {
    const answer = await put(account.id, body)
    expect([answer.status, answer.body.error.fields[0].field]).toEqual([400, field])
  })

  test('reaches only the account that its key is for', async () => {
    const token = await buildOperatorKey(app, { accountId: account.id })
    const other = await buildAccount(app)
    expect((await app.call('GET', path(other.id), { token })).status).toBe(404)
    expect((await app.call('PUT', path(other.id), { token, body: {} })).status).toBe(404)
    expect((await app.call('GET', path(account.id), { token })).status).toBe(200)
  })
})
