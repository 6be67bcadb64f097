/**
 * A patient is made by the first bill, under the contact that the bill has. Whoever is named by something else than that contact goes
 * with the last that was kept of them: row, login and messages, or stays as long as another record needs them.
 */
import { describe, expect, test } from 'vitest'
import type { ErasureSubject } from '../../src/erasure/erasure-rules.ts'
import { lockPatientsOf } from '../../src/erasure/patient-records-repository.ts'
import { newId } from '../../src/ids.ts'
import { done } from '../staff/staff-world.ts'
import { newContact } from '../support/builders.ts'
import { erasureWorld, type Person } from './erasure-world.ts'

const own = erasureWorld()

let people = 0

/** With a login, a message that was written to them by hand, and of records what `make` makes of them. */
async function personWith(make: (person: Person) => Promise<object>): Promise<{ person: Person; order: object }> {
  const { staff } = own
  const mark = `Zq${String.fromCharCode(97 + people++).repeat(3)}nirupama`
  const contact = newContact()
  const person: Person = { mark, contact, email: `${mark}@example.in`, patientToken: '', preBookingId: '' }
  const order = await make(person)
  const byHand = { labID: staff.lab.id, type: 'quotation.send', template: 'camp', text: `Dear ${mark}` }
  done(await staff.post('/messages', { ...byHand, recipient: { contact, name: `${mark} Last` } }))
  person.patientToken = await own.logIn(contact)
  expect((await own.reportsOf(person)).status).toBe(200)
  return { person, order }
}

const nameOf = ({ mark }: Person) => ({ first_name: mark, last_name: 'Last' })
const when = { bookingType: 'Home Collection', scheduledAt: '2027-11-22T07:30:00' }

async function billedBooking(person: Person, fields: object = {}): Promise<{ leadId: string; billId: string }> {
  const { staff } = own
  const { contact, email } = person
  const tests = { unmappedTests: [{ name: `${person.mark} test` }] }
  const leadId = await staff.createEntry({ ...nameOf(person), contact, email, ...tests, ...fields })
  done(await staff.post(`/entries/${leadId}/convert`, when))
  done(await staff.post(`/bookings/${leadId}/assign-phlebotomist`, { phlebotomistId: staff.phlebotomistId }))
  for (const step of ['arrive', 'collect-sample', 'submit-sample'])
    done(await staff.post(`/bookings/${leadId}/${step}`))
  const { billId } = done(await staff.post(`/bookings/${leadId}/bill`))
  return { leadId, billId }
}

const directBill = (person: Person, fields: object = {}) =>
  own.staff
    .post('/bills', {
      ...{ labID: own.staff.lab.id, firstName: person.mark, lastName: 'Last', contact: person.contact },
      tests: [{ test: own.staff.test.id }],
      ...fields,
    })
    .then(done)

async function billedPreBooking(person: Person): Promise<string> {
  const { staff } = own
  const details = { ...nameOf(person), gender: 'female', age: 77, age_type: 'year' }
  const preBookingId = await staff.preBook({
    patient_details: details,
    integrator_id: person.mark,
    barCode: person.mark,
  })
  done(await staff.post(`/pre-bookings/${preBookingId}/bill`, { contact: person.contact }))
  return preBookingId
}

const moveTo = async (patientId: string, contact: string) => {
  const path = `/operator/accounts/${own.staff.account.id}/patients/${patientId}`
  done(await own.app.call('PATCH', path, { token: own.staff.staffKey, body: { contact } }))
}

describe('a patient goes with the last that was kept of them, named by', () => {
  test.each<[string, number, (person: Person) => Promise<object>]>([
    ['the e-mail', 1, async (person) => (await billedBooking(person), { email: person.email })],
    ['the booking', 1, async (person) => ({ leadIds: [(await billedBooking(person)).leadId] })],
    ['the bill of a booking', 1, async (person) => ({ billIds: [(await billedBooking(person)).billId] })],
    ['a bill without a booking', 1, async (person) => ({ billIds: [(await directBill(person)).billId] })],
    ['a pre-booking', 1, async (person) => ({ preBookingIds: [await billedPreBooking(person)] })],
    [
      'their id, beside another contact, with no bill at all',
      0,
      async (person) => {
        const { contact, mark } = person
        const { patientId } = done(await own.staff.post('/patients', { contact, name: `${mark} Last` }))
        return { patientId, contact: newContact() }
      },
    ],
    [
      'the contact that they had before',
      1,
      async (person) => {
        const before = newContact()
        await moveTo((await directBill(person, { contact: before })).patientId, person.contact)
        return { contact: before }
      },
    ],
  ])('%s', async (_what, bills, make) => {
    const { person, order } = await personWith(make)
    await own.everythingTried()
    await own.daemon.stop()
    const { state, erased } = done(await own.order(order))
    expect(state).toBe('completed')
    expect(erased).toMatchObject({ patients: 1, logins: 1, textMessages: 1, bills })
    expect(await own.tracesOf(person)).toEqual([])
    expect((await own.reportsOf(person)).status).toBe(401)
    await own.startDaemon()
  })
})

test('a patient stays, with the login, as long as another bill needs them', async () => {
  const { person, order } = await personWith(async (one) => {
    const { billId } = await directBill(one)
    await directBill(one)
    return { billIds: [billId] }
  })
  const report = done(await own.order(order))
  expect(report.erased).toMatchObject({ bills: 1, patients: 0, logins: 0, textMessages: 0 })
  expect(report.remains.map(({ what }: { what: string }) => what)).toContainEqual(expect.stringMatching(/^patients of/))
  const { contact } = person
  expect(await own.app.database.knex('patients').where({ contact }).pluck('name')).toEqual([`${person.mark} Last`])
  expect((await own.reportsOf(person)).status).toBe(200)
  expect(done(await own.order({ contact })).erased).toMatchObject({ bills: 1, patients: 1, logins: 1 })
  expect((await own.reportsOf(person)).status).toBe(401)
})

test('a login that somebody else has as well stays, and begins anew', async () => {
  let others = 0
  const { person, order } = await personWith(async (one) => {
    const { billId } = await directBill(one)
    await directBill(one, { firstName: 'Ravi', lastName: 'Other' })
    others = await own.app.database
      .knex('patients')
      .where({ contact: one.contact })
      .pluck('id')
      .then((ids) => ids.length)
    return { billIds: [billId] }
  })
  expect(others).toBe(2)
  expect(done(await own.order(order)).erased).toMatchObject({ patients: 1, logins: 1, textMessages: 1 })
  const { contact } = person
  expect(await own.app.database.knex('patients').where({ contact }).pluck('name')).toEqual(['Ravi Other'])
  person.patientToken = await own.logIn(contact)
  expect((await own.reportsOf(person)).status).toBe(200)
})

test('a patient named by id and an e-mail go with all that has the e-mail, whatever name that has', async () => {
  const { staff } = own
  const contact = newContact()
  const email = `${contact}@example.in`
  const { patientId } = done(await staff.post('/patients', { contact, name: 'Asha Kulkarni' }))
  const lead = { first_name: 'Asha', last_name: 'K', contact: newContact(), email }
  await staff.createEntry({ ...lead, unmappedTests: [{ name: 'one' }] })
  expect(done(await own.order({ patientId, email })).erased).toMatchObject({ patients: 1, entries: 1 })
})

test('one person whose names were written with blanks around them is one patient, and erased by name', async () => {
  const person = { mark: 'Asha', contact: newContact(), email: '', patientToken: '', preBookingId: '' }
  const names = [{ firstName: 'Asha ' }, { lastName: ' Last' }, { firstName: 'ASHA', lastName: 'Last  ' }]
  const ids = new Set<string>()
  for (const name of names) ids.add((await directBill(person, name)).patientId)
  expect(ids.size).toBe(1)
  await own.staff.createEntry({ first_name: 'Asha ', last_name: ' Last', contact: person.contact })
  await directBill(person, { firstName: 'Ravi' })
  const { erased } = done(await own.order({ contact: person.contact, name: 'asha last' }))
  expect(erased).toMatchObject({ patients: 1, bills: names.length, entries: 1 })
})

test('a person is found behind the thousands of others whom a placeholder was given for', async () => {
  const { account } = own.staff
  const contact = newContact()
  const name = (n: number) => ([0, 2100].includes(n) ? 'Asha Last' : `Nobody ${n}`)
  const createdAt = own.app.clock.now()
  const rows = Array.from({ length: 2101 }, (_, n) => {
    const id = newId(createdAt.getTime() + n)
    return { id, account_id: account.id, contact, name: name(n), created_at: createdAt }
  })
  const { knex } = own.app.database
  await knex('patients').insert(rows)
  const subject = { contact, name: 'Asha Last', patientId: rows[0]!.id, people: [] } as unknown as ErasureSubject
  // One who is named by id as well is one of as many, not two.
  const found = await knex.transaction((trx) => lockPatientsOf(trx, account.id, subject, 2))
  expect(found.map(({ id }) => id)).toEqual([rows[0]!.id, rows[2100]!.id])
  const { erased } = done(await own.order({ contact, name: 'Asha Last' }))
  expect(erased).toMatchObject({ patients: 2 })
  expect(await knex('patients').where({ contact, name: 'Asha Last' })).toEqual([])
  await knex('patients').where({ contact }).delete()
})

test('a text message with a code of a contact that two share does not go out once one of them is erased', async () => {
  const { app, staff } = own
  const contact = newContact()
  for (const name of ['Asha Rao', 'Ravi Rao']) done(await staff.post('/patients', { contact, name }))
  // One waits behind it.
  await own.logIn(contact)
  const { erased } = done(await own.order({ contact, name: 'Asha Rao' }))
  expect(erased).toMatchObject({ patients: 1, logins: 1, textMessages: 1 })
  app.clock.advance(10_000)
  await app.smsSender.sendDue()
  expect(app.sms.taken.filter(({ to }) => to === contact)).toHaveLength(1)
})

test('a name that is sent beside a patient’s id narrows the e-mail, not their contact', async () => {
  const { staff } = own
  const contact = newContact()
  const email = `${contact}@example.in`
  const { patientId } = done(await staff.post('/patients', { contact, name: 'Asha Rao' }))
  const lead = (name: object, of: string) =>
    staff.createEntry({ ...name, contact: of, email, unmappedTests: [{ name: 'one' }] })
  const asha = await staff.createEntry({
    first_name: 'Asha',
    last_name: 'Rao',
    contact,
    unmappedTests: [{ name: 'one' }],
  })
  // A day later, so that the e-mail is free.
  const ravi = await lead({ first_name: 'Ravi', last_name: '' }, newContact())
  own.app.clock.advance(2 * 86_400_000)
  const mira = await lead({ first_name: 'Mira', last_name: '' }, newContact())
  const { erased } = done(await own.order({ patientId, email, name: 'ravi' }))
  expect(erased).toMatchObject({ patients: 1, entries: 2 })
  const rows = await own.app.database.knex('entries').whereIn('id', [asha, ravi, mira]).select('id', 'first_name')
  const nameOfRow = new Map(rows.map(({ id, first_name: name }) => [id, name]))
  expect([asha, ravi, mira].map((id) => nameOfRow.get(id))).toEqual(['Erased', 'Erased', 'Mira'])
})
