/**
 * Proves of the specification:
 * - the body fields of "POST /client/crm/lead/create", with their types and values, and which are required.
 * - "server defaults bookingStatus `Scheduled`, paymentStatus `Pending`, convertedAt = now" for `phase` = `booking`.
 * - "Party-scoped accounts must attach a party: any one of corporateUser, referredOrganization, referredHospitalOrganization."
 * - "A branchID not belonging to the account returns 403."
 * - "Tests that could not be matched; stored with an unmapped tag for staff to resolve", and packages.
 * - "Fields not in the request schema are silently ignored."
 * - "The integrator's `integratorID` is stored on the entry [...] and echoed in webhook payloads."
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import type { Package } from '../../src/catalogue/packages-repository.ts'
import type { Party } from '../../src/catalogue/parties-repository.ts'
import type { Test } from '../../src/catalogue/tests-repository.ts'
import { newId } from '../../src/ids.ts'
import { client, startTestApp, type TestApp } from '../support/app.ts'
import {
  bookingBody,
  buildAccount,
  buildLab,
  buildPackage,
  buildParty,
  buildTest,
  leadBody,
  type TestAccount,
} from '../support/builders.ts'

let app: TestApp
let account: TestAccount
let lab: Lab
let cbc: Test
let checkup: Package
let corporate: Party
let doctor: Party
let hospital: Party

beforeAll(async () => {
  app = await startTestApp()
  account = await buildAccount(app)
  lab = await buildLab(app, account)
  cbc = await buildTest(app, lab, { name: 'Complete Blood Count' })
  checkup = await buildPackage(app, lab, [cbc], { name: 'Full Body Checkup' })
  corporate = await buildParty(app, account, 'corporate')
  doctor = await buildParty(app, account, 'doctor')
  hospital = await buildParty(app, account, 'hospital')
})
afterAll(() => app.close())

const create = (body: Record<string, unknown>, caller = account) =>
  app.call('POST', '/client/crm/lead/create', { token: caller.token, body })
const entryOf = (leadId: string) => app.database.knex('entries').where({ id: leadId }).first()
const itemsOf = (leadId: string) => app.database.knex('entry_items').where({ entry_id: leadId }).orderBy('position')
const countRows = async () => {
  const tables = ['entries', 'entry_items', 'entry_day_guards', 'events', 'event_bodies', 'unrouted_events']
  const counts = await Promise.all(tables.map((table) => app.database.knex(table).count({ n: '*' }).first()))
  return Object.fromEntries(tables.map((table, index) => [table, Number(counts[index]!.n)]))
}
async function eventOf(leadId: string) {
  const event = await app.database.knex('events').where({ subject_id: leadId }).first()
  const { body } = await app.database.knex('event_bodies').where({ event_id: event.id }).first()
  expect(await app.database.knex('unrouted_events').where({ event_id: event.id })).toHaveLength(1)
  return { event, body: JSON.parse(body.toString('utf8')) }
}

describe('a lead', () => {
  test('needs a lab, the integrator id and a first name, and nothing else', async () => {
    const { status, body } = await create({ branchID: lab.id, integratorID: 'x', first_name: 'Asha' })
    expect(status).toBe(200)
    expect(body).toEqual({ success: true, leadId: body.leadId, phase: 'lead', message: 'Lead created' })
    for (const field of ['branchID', 'integratorID', 'first_name']) {
      const answer = await create(leadBody(lab, { [field]: undefined }))
      expect([answer.status, answer.body.error.details]).toEqual([400, `${field} is required`])
    }
  })

  test('is stored with everything that the contract has, and nothing that it has not', async () => {
    const details = {
      title: 'Mr', country_code: '+91', age: 42.5, age_type: 'year', gender: 'male', weight: 71.5, height: 174,
      address: '14 Prabhat Road', pincode: '411004', location: 'https://maps.example.in/?q=1', petOwnerName: 'Kavita',
      breed: 'Pariah', animalCategory: 'Dog', notes: 'Fasting "since" 9 \\ PM', source: 'website', priority: 'high',
    } // prettier-ignore
    const fields = {
      first_name: "Rohan'; DROP TABLE entries; --",
      last_name: 'Kulkarni 😀',
      contact: '9822012345',
      email: 'Rohan@Example.in',
      tests: [{ test: cbc.id, cost: 350 }, { test: cbc.id }],
      packages: [{ package: checkup.id, price: 1899.05 }],
      unmappedTests: [{ name: 'Allergy panel' }],
      unmappedPackages: [{ name: 'Senior profile', price: 0 }],
      discountAmount: 100.1,
      totalAmount: 1799.99,
      corporateUser: corporate.id,
      referredOrganization: doctor.id,
      referredHospitalOrganization: hospital.id,
      paymentMethod: 'UPI',
      paymentStatus: 'Pay Later',
      bookingType: 'Lab Visit',
      scheduledAt: '2026-11-21T07:30:00',
      ...details,
    }
    const unknown = {
      bookingStatus: 'Cancelled',
      convertedAt: 'x',
      accountId: 'x',
      id: 'x',
      version: 9,
      extra: { a: 1 },
      telecaller: 'x',
      createdAt: 'x',
      'payment method': 'UPI',
    }
    const { status, body } = await create(leadBody(lab, { integratorID: 'CRM-1', ...fields, ...unknown }))
    expect(status).toBe(200)
    const { details: storedDetails, ...stored } = await entryOf(body.leadId)
    expect(JSON.parse(storedDetails)).toEqual(details)
    expect(stored).toMatchObject({
      account_id: account.id, lab_id: lab.id, version: 1, phase: 'lead', integrator_id: 'CRM-1',
      first_name: fields.first_name, last_name: fields.last_name, contact: '9822012345', email: 'Rohan@Example.in',
      corporate_id: corporate.id, doctor_id: doctor.id, hospital_id: hospital.id, booking_type: 'Lab Visit',
      scheduled_at: new Date('2026-11-21T02:00:00Z'), booking_status: null, payment_status: 'Pay Later',
      payment_method: 'UPI', converted_at: null, assigned_to: null, discount_amount: 100.1, total_amount: 1799.99,
      created_at: app.clock.now(), updated_at: app.clock.now(),
    }) // prettier-ignore
    expect(await itemsOf(body.leadId)).toMatchObject([
      { kind: 'test', item_id: cbc.id, name: 'Complete Blood Count', price: 350 },
      { kind: 'test', item_id: cbc.id, name: 'Complete Blood Count', price: null },
      { kind: 'package', item_id: checkup.id, name: 'Full Body Checkup', price: 1899.05 },
      { kind: 'test', item_id: null, name: 'Allergy panel', price: null },
      { kind: 'package', item_id: null, name: 'Senior profile', price: 0 },
    ])
    expect(JSON.stringify(await app.database.knex('entries').where({ id: body.leadId }))).not.toContain('extra')
  })

  test('records lead.created with its parties in the same transaction, and tells the daemons', async () => {
    const before = app.hints()
    const parties = { referredOrganization: doctor.id, referredHospitalOrganization: hospital.id }
    const { body } = await create(leadBody(lab, { integratorID: 'CRM-2', tests: [{ test: cbc.id }], ...parties }))
    expect(app.hints()).toBe(before + 1)
    const { event, body: payload } = await eventOf(body.leadId)
    expect(event).toMatchObject({ account_id: account.id, lab_id: lab.id, type: 'lead.created', corporate_id: null })
    expect([event.doctor_id, event.hospital_id]).toEqual([doctor.id, hospital.id])
    client.checkSchema('#/components/schemas/LeadCreatedEvent', payload)
    expect(payload).toMatchObject({
      id: `evt_${event.id}`,
      timestamp: app.clock.now().toISOString(),
      labID: lab.id,
      integratorID: 'CRM-2',
      organization: doctor.id,
      data: { lead: { leadId: body.leadId, version: 1, ...parties } },
    })
    expect(payload).not.toHaveProperty('corporateUser')
  })
})

test('what is unknown in a nested object is ignored, and stored nowhere', async () => {
  const extra = { canary: 'Canary9041', _id: 'Canary9041' }
  const { status, body } = await create(
    leadBody(lab, {
      ...extra,
      tests: [{ test: cbc.id, cost: 1, ...extra }],
      packages: [{ package: checkup.id, ...extra }],
      unmappedTests: [{ name: 'Allergy panel', test: cbc.id, ...extra }],
      unmappedPackages: [{ name: 'Senior profile', ...extra }],
    }),
  )
  expect(status).toBe(200)
  const stored = [await entryOf(body.leadId), await itemsOf(body.leadId), await eventOf(body.leadId)]
  expect(JSON.stringify(stored)).not.toContain('Canary9041')
})

test('tests and packages that could not be matched carry a tag that staff can look for', async () => {
  const fields = {
    tests: [{ test: cbc.id }],
    unmappedTests: [{ name: 'Allergy panel', cost: 10 }],
    unmappedPackages: [{ name: 'Senior profile' }],
  }
  const { body } = await create(leadBody(lab, fields))
  const tagged = () => app.database.knex('entry_items').where({ entry_id: body.leadId, unmapped: true })
  expect(await tagged().orderBy('position').select('kind', 'name', 'price')).toEqual([
    { kind: 'test', name: 'Allergy panel', price: 10 },
    { kind: 'package', name: 'Senior profile', price: null },
  ])
  // Staff resolve one: the tag goes with it.
  await tagged().where({ kind: 'test' }).update({ item_id: cbc.id })
  expect(await tagged().select('name')).toEqual([{ name: 'Senior profile' }])
})

describe('a booking', () => {
  test('needs its type and its time', async () => {
    const { status, body } = await create(leadBody(lab, { phase: 'booking' }))
    expect([status, body.error.details]).toEqual([400, 'bookingType is required; scheduledAt is required'])
  })

  test('starts as Scheduled and Pending, converted now, and records booking.created', async () => {
    const { body } = await create(bookingBody(lab))
    const now = app.clock.now().toISOString()
    expect(body).toEqual({
      success: true,
      leadId: body.leadId,
      phase: 'booking',
      message: 'Booking created',
      bookingStatus: 'Scheduled',
      paymentStatus: 'Pending',
      convertedAt: now,
    })
    const { event, body: payload } = await eventOf(body.leadId)
    expect(event.type).toBe('booking.created')
    client.checkSchema('#/components/schemas/BookingCreatedEvent', payload)
    expect(payload.data.booking).toMatchObject({ scheduledAt: '2026-11-21T02:00:00.000Z', phlebotomist: null })
  })

  test('keeps a payment status that was sent', async () => {
    expect((await create(bookingBody(lab, { paymentStatus: 'Paid' }))).body.paymentStatus).toBe('Paid')
  })

  test("without an offset is scheduled by the account's clock", async () => {
    const berliner = await buildAccount(app, { timeZone: 'Europe/Berlin' })
    const body = bookingBody(await buildLab(app, berliner), { scheduledAt: '2026-12-01T08:00' })
    const { body: answer } = await create(body, berliner)
    expect((await entryOf(answer.leadId)).scheduled_at).toEqual(new Date('2026-12-01T07:00:00Z'))
  })

  test.each(['2026-02-30T10:00:00Z', '2026-11-21', '2026-11-21T25:00:00', '9999-12-31T23:59:59-01:00', 'soon', ''])(
    'at a time that does not exist is 400: "%s"',
    async (scheduledAt) => {
      const answer = await create(bookingBody(lab, { scheduledAt }))
      expect(answer.body.error.fields.map(({ field }: { field: string }) => field)).toEqual(['scheduledAt'])
    },
  )
})

describe('a request is refused', () => {
  test.each([
    ['contact', '98220 12345'],
    ['contact', '+919822012345'],
    ['contact', '982201234'],
    ['contact', ''],
    ['contact', '٩٨٢٢٠١٢٣٤٥'],
    ['contact', 9822012345],
    ['contact', null],
    ['phase', 'Lead'],
    ['gender', 'unknown'],
    ['age_type', 'weeks'],
    ['priority', 'LOW'],
    ['bookingType', 'Home'],
    ['paymentStatus', 'pending'],
    ['age', '42'],
    ['age', -1],
    ['totalAmount', -0.01],
    ['totalAmount', 1.005],
    ['totalAmount', 1e10],
    ['discountAmount', '5'],
    ['integratorID', ''],
    ['integratorID', 5],
    ['email', {}],
    ['tests', {}],
    ['customFields', []],
    ['assignedTo', 5],
    ['paymentMethod', null],
    ['title', 1],
    ['weight', '71'],
    ['height', -1],
    ['location', {}],
    ['first_name', ''],
    ['scheduledAt', 1795149730],
    ['unmappedPackages', 'x'],
    ['corporateUser', null],
  ])('with %s %j: 400 naming it', async (field, value) => {
    const answer = await create(leadBody(lab, { [field]: value }))
    expect(answer.status).toBe(400)
    expect(answer.body.error.fields).toEqual([{ field, message: expect.any(String) }])
  })

  test('with every unknown id named at once, and nothing stored', async () => {
    const elsewhere = await buildTest(app, await buildLab(app, account))
    const before = await countRows()
    const answer = await create(
      leadBody(lab, {
        corporateUser: doctor.id,
        referredOrganization: hospital.id,
        referredHospitalOrganization: newId(0),
        tests: [{ test: cbc.id }, { test: elsewhere.id }],
        packages: [{ package: cbc.id }],
        assignedTo: 'someone',
        customFields: { bloodBank: 1 },
        paymentMethod: 'Cheque',
      }),
    )
    expect(answer.status).toBe(400)
    expect(answer.body.error.fields.map(({ field }: { field: string }) => field)).toEqual([
      'corporateUser', 'referredOrganization', 'referredHospitalOrganization', 'tests.1.test', 'packages.0.package',
      'assignedTo', 'customFields.bloodBank', 'paymentMethod',
    ]) // prettier-ignore
    expect(answer.body.error.details).toContain(`unknown test ${elsewhere.id}`)
    expect(answer.body.error.details).toContain('paymentMethod must be one of UPI, Card, Cash')
    expect(await countRows()).toEqual(before)
  })

  test('for a lab that is unknown, inactive or of another account: one 403', async () => {
    const foreign = await buildLab(app, await buildAccount(app))
    const inactive = await buildLab(app, account, { active: false })
    for (const branchID of [
      foreign.id,
      inactive.id,
      newId(0),
      '',
      'x',
      `${lab.id}x`,
      lab.id.toUpperCase(),
      `${lab.id} `,
      '\u2019',
    ]) {
      // The tests are looked up with the lab, and a server refuses to compare a column of ids with what is not ASCII.
      const answer = await create(leadBody(lab, { branchID, tests: [{ test: cbc.id }] }))
      expect([answer.status, answer.body.error.details]).toEqual([403, 'branchID does not belong to the account'])
    }
  })

  test('with parties of another account as if they did not exist', async () => {
    const foreign = await buildParty(app, await buildAccount(app), 'corporate')
    const answer = await create(leadBody(lab, { corporateUser: foreign.id }))
    expect([answer.status, answer.body.error.code]).toEqual([400, 'unknown_party'])
  })

  test('without a party on a party-scoped account, where any one of three, or several, will do', async () => {
    const scoped = await buildAccount(app, { mode: 'party_scoped' })
    const scopedLab = await buildLab(app, scoped)
    const own = await buildParty(app, scoped, 'corporate')
    const referring = await buildParty(app, scoped, 'hospital')
    const none = await create(leadBody(scopedLab, { organization: referring.id }), scoped)
    expect([none.status, none.body.error.code]).toEqual([400, 'party_required'])
    expect(none.body.error.fields.map(({ field }: { field: string }) => field)).toEqual([
      'corporateUser', 'referredOrganization', 'referredHospitalOrganization',
    ]) // prettier-ignore
    for (const parties of [
      { corporateUser: own.id },
      { referredHospitalOrganization: referring.id },
      { corporateUser: own.id, referredHospitalOrganization: referring.id },
    ]) {
      expect((await create(leadBody(scopedLab, parties), scoped)).status).toBe(200)
    }
  })
})

test('no attempt of this file was answered with a fault of ours', () => {
  expect(app.logs().filter(({ status }) => Number(status) >= 500)).toEqual([])
})
