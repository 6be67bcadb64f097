import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { startTestApp, type TestApp } from '../support/app.ts'
import {
  buildLab,
  buildPackage,
  buildParty,
  buildPatient,
  buildTest,
  newContact,
  setTestPrice,
} from '../support/builders.ts'
import { done, openStaffWorld, uploadedReport, type StaffWorld } from './staff-world.ts'

let app: TestApp
let world: StaffWorld

beforeAll(async () => {
  app = await startTestApp()
  world = await openStaffWorld(app)
  const { knex } = app.database
  await knex('operator_lists').insert({
    account_id: world.account.id,
    list: 'lead_source',
    position: 0,
    value: 'Website',
  })
})
afterAll(() => app.close())

const billOfPreBooking = (id: string, body: object = {}) => world.post(`/pre-bookings/${id}/bill`, body)

describe('a pre-booking', () => {
  test('becomes a bill that carries its integrator_id, its items and their prices, and is billed from then on', async () => {
    const doctor = await buildParty(app, world.account, 'doctor')
    const preBookingID = await world.preBook({
      integrator_id: 'PB-4711',
      doctor: doctor.id,
      unmapped_packages_with_tests: [{ package_name: 'Wellness', tests: ['Vitamin D', 'B12'] }],
    })
    expect(done(await world.get(`/pre-bookings/${preBookingID}`))).toMatchObject({ status: 'created', version: 1 })
    const contact = newContact()
    const bill = done(await billOfPreBooking(preBookingID, { contact }))
    expect(bill).toMatchObject({
      status: 'created',
      version: 1,
      integratorID: 'PB-4711',
      preBookingID,
      leadId: null,
      patientName: 'Farhan Shaikh',
      contact,
      referredOrganization: doctor.id,
      totalAmount: 350,
      discountAmount: null,
    })
    expect(bill.items).toEqual([
      { item: 1, kind: 'test', id: world.test.id, name: world.test.name, price: 350, reportId: null },
      { item: 2, kind: 'package', id: null, name: 'Wellness', price: null, reportId: null },
    ])
    const [event] = await world.eventsOf(bill.billId)
    expect(event).toMatchObject({ type: 'bill.created', integratorID: 'PB-4711', organization: doctor.id })
    expect(event.data.bill).toMatchObject({
      billId: bill.billId,
      integratorID: 'PB-4711',
      preBookingID,
      totalAmount: 350,
      unmappedPackages: [{ name: 'Wellness', price: null, tests: ['Vitamin D', 'B12'] }],
    })
    expect(done(await world.get(`/pre-bookings/${preBookingID}`))).toMatchObject({ status: 'billed', version: 2 })
    const again = await billOfPreBooking(preBookingID)
    expect([again.status, again.body.error.code]).toEqual([409, 'invalid_state'])
  })

  test('is found by its id with its state, and in lists by state and lab', async () => {
    const waiting = await world.preBook()
    const billed = await world.preBook()
    done(await billOfPreBooking(billed))
    const idsOf = async (query: Record<string, string>) =>
      done(await world.get('/pre-bookings', query)).preBookings.map((row: any) => row.preBookingID)
    expect(await idsOf({ status: 'created', labID: world.lab.id })).toEqual([waiting])
    expect(await idsOf({ status: 'billed' })).toContain(billed)
    expect(await idsOf({ labID: 'x' })).toEqual([])
    const other = await openStaffWorld(app)
    expect((await other.get(`/pre-bookings/${waiting}`)).status).toBe(404)
    expect((await other.post(`/pre-bookings/${waiting}/bill`, {})).status).toBe(404)
    expect(done(await other.get('/pre-bookings')).preBookings).toEqual([])
  })

  test('that 16 bill at once becomes one bill', async () => {
    const preBookingID = await world.preBook()
    const answers = await Promise.all(Array.from({ length: 16 }, () => billOfPreBooking(preBookingID)))
    expect(answers.map(({ status }) => status).sort()).toEqual([201, ...Array(15).fill(409)])
    expect(done(await world.get('/bills', { preBookingID })).bills).toHaveLength(1)
  })
})

describe('a booking', () => {
  test('becomes a bill with its integratorID, parties and amounts; what was not agreed costs what the party pays', async () => {
    const corporate = await buildParty(app, world.account, 'corporate')
    const agreed = await buildTest(app, world.lab, { cost: 500 })
    const open = await buildTest(app, world.lab, { cost: 200.1 })
    await setTestPrice(app, corporate, open, 150.2)
    const leadId = await world.createBooking({
      integratorID: 'CRM-4711',
      corporateUser: corporate.id,
      tests: [{ test: agreed.id, cost: 400.1 }, { test: open.id }],
      discountAmount: 50.3,
    })
    const bill = done(await world.post(`/bookings/${leadId}/bill`))
    expect(bill).toMatchObject({
      integratorID: 'CRM-4711',
      leadId,
      corporateUser: corporate.id,
      discountAmount: 50.3,
      totalAmount: 500,
    })
    expect(bill.items.map(({ price }: any) => price)).toEqual([400.1, 150.2])
    const [event] = await world.eventsOf(bill.billId)
    expect(event).toMatchObject({ integratorID: 'CRM-4711', corporateUser: corporate.id, data: { bill: { leadId } } })
    const again = await world.post(`/bookings/${leadId}/bill`)
    expect([again.status, again.body.error.details]).toEqual([
      409,
      `the booking is Scheduled and billed already, by the bill ${bill.billId}`,
    ])
    const cancelled = await world.post(`/bookings/${leadId}/cancel`)
    expect([cancelled.status, cancelled.body.error.code]).toEqual([409, 'invalid_state'])
  })

  test('that costs less than its discount is refused, and a total of staff counts before all else', async () => {
    const leadId = await world.createBooking({ discountAmount: 350.01 })
    const refused = await world.post(`/bookings/${leadId}/bill`)
    expect([refused.status, refused.body.error.fields[0].field]).toEqual([400, 'discountAmount'])
    const bill = done(await world.post(`/bookings/${leadId}/bill`, { discountAmount: 10, totalAmount: 99.99 }))
    expect(bill).toMatchObject({ discountAmount: 10, totalAmount: 99.99 })
  })
})

describe('a bill', () => {
  test('is made directly of tests and packages of the lab', async () => {
    const pack = await buildPackage(app, world.lab, [world.test], { total: 999 })
    const body = {
      labID: world.lab.id,
      firstName: 'Sana',
      packages: [{ package: pack.id }],
      tests: [{ test: world.test.id, cost: 1 }],
    }
    const bill = done(await world.post('/bills', body))
    expect(bill).toMatchObject({
      leadId: null,
      preBookingID: null,
      integratorID: null,
      totalAmount: 1000,
      patientId: null,
    })
    const [event] = await world.eventsOf(bill.billId)
    expect([event.type, event.integratorID]).toEqual(['bill.created', null])
    for (const [fields, code] of [
      [{ tests: [{ test: 'x' }] }, 'unknown_test'],
      [{ labID: 'x' }, 'unknown_lab'],
      [{ corporateUser: 'x' }, 'unknown_party'],
      [{ tests: undefined, packages: undefined }, 'invalid_request'],
    ] as const) {
      const answer = await world.post('/bills', { ...body, ...fields })
      expect([answer.status, answer.body.error.code]).toEqual([400, code])
    }
  })

  test('is 409 in a lab that is inactive, after every id that is unknown', async () => {
    const closed = await buildLab(app, world.account, { active: false })
    const body = { labID: closed.id, firstName: 'Sana', tests: [{ test: (await buildTest(app, closed)).id }] }
    const { status, body: refusal } = await world.post('/bills', body)
    const details = 'the lab is inactive: activate it first'
    expect([status, refusal.error]).toEqual([409, { details, code: 'invalid_state' }])
    const unknown = await world.post('/bills', { ...body, tests: [{ test: world.test.id }], corporateUser: 'x' })
    expect([unknown.status, unknown.body.error.fields.length]).toEqual([400, 2])
  })

  test('has its patient by contact and name: found, or made, also of several bills at once', async () => {
    const known = await buildPatient(app, world.account, { name: 'Asha Rao' })
    const body = { labID: world.lab.id, firstName: ' asha', lastName: 'RAO ', tests: [{ test: world.test.id }] }
    const bill = done(await world.post('/bills', { ...body, contact: known.contact }))
    expect(bill.patientId).toBe(known.id)
    const contact = newContact()
    const bills = await Promise.all(Array.from({ length: 8 }, () => world.post('/bills', { ...body, contact })))
    expect(new Set(bills.map((answer) => done(answer).patientId)).size).toBe(1)
    expect(await app.database.knex('patients').where({ account_id: world.account.id, contact })).toHaveLength(1)
    const sister = done(await world.post('/bills', { ...body, firstName: 'Sana', contact }))
    expect(sister.patientId).not.toBe(done(bills[0]!).patientId)
  })

  test('that is deleted says so, frees what it was made of, and discards its drafts', async () => {
    const preBookingID = await world.preBook()
    const { billId } = done(await billOfPreBooking(preBookingID))
    const { reportId } = done(await world.post(`/bills/${billId}/reports`, {}))
    done(await world.putPdf(`/reports/${reportId}/upload`))
    app.clock.advance(1000)
    const deleted = done(await world.post(`/bills/${billId}/delete`))
    expect(deleted).toMatchObject({ status: 'deleted', version: 3, deletedAt: app.clock.now().toISOString() })
    const [, event] = await world.eventsOf(billId)
    expect(event).toMatchObject({ type: 'bill.deleted', data: { bill: { version: 3, status: 'deleted' } } })
    expect(done(await world.get(`/reports/${reportId}`))).toMatchObject({ status: 'discarded', reportUrl: null })
    expect(done(await world.get(`/pre-bookings/${preBookingID}`))).toMatchObject({ status: 'created', version: 3 })
    const anew = done(await billOfPreBooking(preBookingID))
    expect(anew.billId).not.toBe(billId)
    const bills = done(await world.get('/bills', { preBookingID })).bills
    expect(bills.map(({ status }: any) => status)).toEqual(['deleted', 'created'])
  })

  test('with a report that is signed off stays', async () => {
    const { billId, reportId } = await uploadedReport(world)
    done(await world.post(`/reports/${reportId}/sign-off`))
    const answer = await world.post(`/bills/${billId}/delete`)
    expect([answer.status, answer.body.error.code]).toEqual([409, 'invalid_state'])
  })

  test('of another account is unknown', async () => {
    const { billId } = await uploadedReport(world)
    const other = await openStaffWorld(app)
    expect((await other.get(`/bills/${billId}`)).status).toBe(404)
    expect((await other.post(`/bills/${billId}/delete`)).status).toBe(404)
    expect((await other.post(`/bills/${billId}/reports`, {})).status).toBe(404)
    expect(done(await other.get('/bills')).bills).toEqual([])
    expect(done(await world.get(`/bills/${billId}`)).status).toBe('created')
  })
})
