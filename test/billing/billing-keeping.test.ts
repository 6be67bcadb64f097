import { afterAll, beforeAll, expect, test } from 'vitest'
import { listOperatorValues } from '../../src/billing/operator-lists-repository.ts'
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import { newId } from '../../src/ids.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import {
  buildAccount,
  buildLab,
  buildOperatorKey,
  buildPackage,
  buildTest,
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
})
afterAll(() => app.close())

const put = (path: string, body: unknown, token = key) => app.call('PUT', `/operator${path}`, { token, body })
const setSources = (leadSources: unknown, token = key, id = account.id) =>
  put(`/accounts/${id}/lead-sources`, { leadSources }, token)
const setRateLists = (rateListTypes: unknown, token = key) =>
  put(`/accounts/${account.id}/rate-lists`, { rateListTypes }, token)
const setPrice = (body: unknown, token = key) => put(`/labs/${lab.id}/rate-list-prices`, body, token)

test('what the operator sets is what a pre-booking may name, and what it costs', async () => {
  const cbc = await buildTest(app, lab, { cost: 350 })
  const checkup = await buildPackage(app, lab, [cbc])
  expect((await setSources([' Website ', 'Partner', 'Website', ' '])).body).toEqual({
    accountId: account.id,
    leadSources: ['Website', 'Partner'],
  })
  expect((await setRateLists(['Corporate'])).body.rateListTypes).toEqual(['Corporate'])
  expect((await setPrice({ rateListType: 'Corporate', test: cbc.id, price: 1 })).status).toBe(200)
  const set = await setPrice({ rateListType: 'Corporate', test: cbc.id, price: 299 })
  expect(set.body).toEqual({ labID: lab.id, rateListType: 'Corporate', test: cbc.id, price: 299 })
  expect((await setPrice({ rateListType: 'Corporate', package: checkup.id, price: 999.5 })).status).toBe(200)
  const { body } = await app.call('POST', '/client/billing/create', {
    token: account.token,
    body: {
      labID: lab.id,
      patient_details: { first_name: 'Farhan', gender: 'male', age: 51, age_type: 'year' },
      integrator_id: 'PB-1',
      lead_source: 'Website',
      rate_list_type: 'Corporate',
      mapped_tests: [{ id: cbc.id }],
      mapped_packages: [{ id: checkup.id }],
    },
  })
  const rows = await app.database.knex('pre_booking_items').where({ pre_booking_id: body.preBookingID })
  expect(rows.map(({ price }) => price)).toEqual([299, 999.5])
})

test('setting a list replaces it, and ten at once leave one of them whole', async () => {
  const lists = Array.from({ length: 10 }, (_, n) => [`a${n}`, `b${n}`, `c${n}`])
  const answers = await Promise.all(lists.map((list) => setSources(list)))
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]))
  expect(lists).toContainEqual(await listOperatorValues(app.database.knex, account.id, 'lead_source'))
  expect((await setSources([])).body.leadSources).toEqual([])
})

test('a price needs a rate list of the account and exactly one test or package of the lab', async () => {
  await setRateLists(['Corporate'])
  const cbc = await buildTest(app, lab)
  const elsewhere = await buildTest(app, await buildLab(app, account))
  for (const body of [
    { rateListType: 'Gold', test: cbc.id, price: 1 },
    { rateListType: 'Corporate', test: elsewhere.id, price: 1 },
    { rateListType: 'Corporate', package: cbc.id, price: 1 },
    { rateListType: 'Corporate', price: 1 },
    { rateListType: 'Corporate', test: cbc.id, package: cbc.id, price: 1 },
    { rateListType: 'Corporate', test: cbc.id, price: -1 },
  ]) {
    expect((await setPrice(body)).status).toBe(400)
  }
})

test('it takes an admin key that reaches the account', async () => {
  const staff = await buildOperatorKey(app, { role: 'staff' })
  const bound = await buildOperatorKey(app, { accountId: (await buildAccount(app)).id })
  const price = { rateListType: 'Corporate', test: newId(0), price: 1 }
  for (const [token, status] of [
    [staff, 403],
    [bound, 404],
  ] as const) {
    expect((await setSources([], token)).status).toBe(status)
    expect((await setRateLists([], token)).status).toBe(status)
    expect((await setPrice(price, token)).status).toBe(status)
  }
  expect((await setSources([], key, newId(0))).status).toBe(404)
})
