/**
 * Proves of the specification: the values of the body fields of "POST /client/crm/lead/create", and which kind of party each of
 * its three party fields takes.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { bookingBody, buildAccount, buildLab, buildParty, leadBody, type TestAccount } from '../support/builders.ts'

let app: TestApp
let account: TestAccount
let lab: Lab

beforeAll(async () => {
  app = await startTestApp()
  account = await buildAccount(app)
  lab = await buildLab(app, account)
})
afterAll(() => app.close())

const create = (body: Record<string, unknown>, caller = account) =>
  app.call('POST', '/client/crm/lead/create', { token: caller.token, body })
const entryOf = (leadId: string) => app.database.knex('entries').where({ id: leadId }).first()

describe('every value that the specification lists is taken and stored', () => {
  test.each([
    ['gender', ['male', 'female', 'other']],
    ['age_type', ['year', 'month', 'day']],
    ['priority', ['urgent', 'high', 'medium', 'low']],
  ])('%s', async (field, values) => {
    for (const value of values) {
      const { body } = await create(leadBody(lab, { [field]: value }))
      const { details } = await entryOf(body.leadId)
      expect(JSON.parse(details)).toEqual({ [field]: value })
    }
  })

  test.each([
    ['bookingType', 'booking_type', ['Home Collection', 'Lab Visit']],
    ['paymentStatus', 'payment_status', ['Pending', 'Paid', 'Pay Later']],
    ['paymentMethod', 'payment_method', ['UPI', 'Card', 'Cash']],
    ['phase', 'phase', ['lead', 'booking']],
  ])('%s', async (field, column, values) => {
    for (const value of values) {
      const { body } = await create(bookingBody(lab, { [field]: value }))
      expect((await entryOf(body.leadId))[column]).toBe(value)
    }
  })
})

test.each(['catch_all', 'party_scoped'] as const)(
  'on a %s account each party field takes its own kind',
  async (mode) => {
    const owner = await buildAccount(app, { mode })
    const ownLab = await buildLab(app, owner)
    const fields = {
      corporateUser: 'corporate',
      referredOrganization: 'doctor',
      referredHospitalOrganization: 'hospital',
    }
    const ids: Record<string, string> = {}
    for (const kind of ['corporate', 'doctor', 'hospital'] as const) ids[kind] = (await buildParty(app, owner, kind)).id
    for (const [field, kind] of Object.entries(fields)) {
      for (const [otherKind, id] of Object.entries(ids)) {
        const { status, body } = await create(leadBody(ownLab, { [field]: id }), owner)
        expect([field, otherKind, status]).toEqual([field, otherKind, otherKind === kind ? 200 : 400])
        if (status === 400) expect(body.error.fields).toEqual([{ field, message: 'is unknown' }])
      }
    }
  },
)

test.each(['unmappedTests', 'unmappedPackages'])(
  '%s without a name are refused, a blank one is taken',
  async (field) => {
    const refused = await create(leadBody(lab, { [field]: [{ name: 'Allergy panel' }, { name: '' }] }))
    expect([refused.status, refused.body.error.fields[0].field]).toEqual([400, `${field}.1.name`])
    expect((await create(leadBody(lab, { [field]: [{ name: ' ' }] }))).status).toBe(200)
  },
)

test('the same integratorID twice is two entries', async () => {
  const answers = [
    await create(leadBody(lab, { integratorID: 'same' })),
    await create(leadBody(lab, { integratorID: 'same' })),
  ]
  expect(answers.map(({ status }) => status)).toEqual([200, 200])
})
