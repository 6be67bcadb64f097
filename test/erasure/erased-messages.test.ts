/** Messages and files that nothing but their own text or bytes shows to be a person's go with the person, too. */
import { once } from 'node:events'
import { request, type IncomingMessage } from 'node:http'
import { expect, test } from 'vitest'
import { done } from '../staff/staff-world.ts'
import { monotonicMs } from '../../src/clock.ts'
import { runErasure } from '../../src/erasure/erasure-runner.ts'
import { listRunningErasures } from '../../src/erasure/erasures-repository.ts'
import { newId } from '../../src/ids.ts'
import { newContact } from '../support/builders.ts'
import { erasureWorld, filesIn, type Person } from './erasure-world.ts'

const own = erasureWorld()

let people = 0

function somebody(): Person {
  const mark = `Zq${String.fromCharCode(97 + people++).repeat(3)}hypatia`
  return { mark, contact: newContact(), email: `${mark}@example.in`, patientToken: '', preBookingId: '' }
}

const fullName = ({ mark }: Person) => `${mark} Last`

async function writeTo(person: Person, recipient: object = {}, about: object = {}): Promise<void> {
  const { staff } = own
  const message = { labID: staff.lab.id, type: 'quotation.send', template: 'camp', text: `Dear ${person.mark}` }
  const to = { contact: person.contact, name: fullName(person), ...recipient }
  done(await staff.post('/messages', { ...message, recipient: to, ...about }))
}

const bill = async (person: Person, fields: object = {}) => {
  const { lab, test: item } = own.staff
  const direct = { labID: lab.id, firstName: person.mark, lastName: 'Last', contact: person.contact }
  return done(await own.staff.post('/bills', { ...direct, tests: [{ test: item.id }], ...fields }))
}

const leadOf = ({ mark, contact, email }: Person) =>
  own.staff.createEntry({ first_name: mark, last_name: 'Last', contact, email })

async function moveTo(patientId: string, contact: string): Promise<void> {
  const path = `/operator/accounts/${own.staff.account.id}/patients/${patientId}`
  done(await own.app.call('PATCH', path, { token: own.staff.staffKey, body: { contact } }))
}

/** With what waits for retries. */
async function erase(order: object) {
  await own.everythingTried()
  await own.daemon.stop()
  const report = done(await own.order(order))
  expect(report.state).toBe('completed')
  await own.startDaemon()
  return report
}

test('a message about somebody else’s entry goes with the person whom it is for', async () => {
  const person = somebody()
  await writeTo(person, {}, { leadId: await own.staff.createEntry() })
  await erase({ contact: person.contact })
  expect(await own.tracesOf(person)).toEqual([])
})

test.each(['+91', '91', '0', '0091', '091', '+910'])(
  'a message to the number with %s before it goes',
  async (prefix) => {
    const person = somebody()
    await writeTo(person, { contact: `${prefix}${person.contact}` })
    await erase({ contact: person.contact })
    expect(await own.tracesOf(person)).toEqual([])
  },
)

test('a message to the number with another country’s code before it goes with whoever has the name, too', async () => {
  const [person, stranger] = [somebody(), somebody()]
  await writeTo(person, { contact: `+1${person.contact}` })
  await writeTo(stranger, { contact: `+1${person.contact}` })
  await erase({ contact: person.contact, name: fullName(person) })
  // The number stands in what the stranger got.
  expect(await own.tracesOf({ ...person, contact: person.mark })).toEqual([])
  expect(await own.tracesOf(stranger)).toContain('event_bodies')
})

test.each<[string, (person: Person) => Promise<object>]>([
  ['the lead', async (person) => ({ leadIds: [await leadOf(person)] })],
  ['the e-mail', async (person) => (await leadOf(person), { email: person.email })],
])('a message to somebody of whom there was a lead alone goes, named by %s', async (_what, make) => {
  const person = somebody()
  const order = await make(person)
  await writeTo(person)
  await erase(order)
  expect(await own.tracesOf(person)).toEqual([])
})

test('the contact that a bill has goes with a patient who has another one since, and so does its login', async () => {
  const person = somebody()
  const { patientId } = await bill(person)
  await own.logIn(person.contact)
  await writeTo(person)
  await moveTo(patientId, newContact())
  expect((await erase({ patientId })).erased).toMatchObject({ bills: 1, patients: 1, logins: 1 })
  expect(await own.tracesOf(person)).toEqual([])
})

test('a name that is longer than a message’s recipient may have is the same person', async () => {
  const person = somebody()
  const lastName = 'Subrahmanyam '.repeat(7).trim()
  const { patientId } = await bill(person, { lastName })
  await writeTo(person, { name: `${person.mark} ${lastName}`.slice(0, 100).trim() })
  await erase({ patientId })
  expect(await own.tracesOf(person)).toEqual([])
})

test('a message stays as long as another bill needs whom it is for', async () => {
  const person = somebody()
  const { billId } = await bill(person)
  await bill(person)
  await writeTo(person)
  await erase({ billIds: [billId] })
  expect(await own.tracesOf(person)).toContain('event_bodies')
  await erase({ contact: person.contact })
  expect(await own.tracesOf(person)).toEqual([])
})

test('the files of drafts that were replaced, and of a bill that was deleted, go at once', async () => {
  const person = somebody()
  const { billId } = await bill(person)
  const { reportId } = done(await own.staff.post(`/bills/${billId}/reports`, {}))
  const pdf = (text: string) => Buffer.from(`%PDF-1.4\n${person.mark} ${text}\n%%EOF\n`)
  done(await own.staff.putPdf(`/reports/${reportId}/upload`, pdf('mistaken')))
  done(await own.staff.putPdf(`/reports/${reportId}/upload`, pdf('right')))
  expect(await own.tracesOf(person)).toContain('(files)')
  done(await own.staff.post(`/bills/${billId}/delete`))
  expect(await own.tracesOf(person)).not.toContain('(files)')
  await erase({ contact: person.contact })
  expect(await own.tracesOf(person)).toEqual([])
})

test('what was sent of a bill that stays is not touched, whatever the patient is called by now, and whoever has like numbers', async () => {
  const person = somebody()
  const { billId, patientId } = await bill(person)
  const kept = await bill(person)
  done(await own.staff.post(`/bills/${kept.billId}/send`))
  const stranger = somebody()
  await writeTo(stranger, { contact: `+86${person.contact}` })
  const path = `/operator/accounts/${own.staff.account.id}/patients/${patientId}`
  const body = { contact: newContact(), name: `${person.mark} Married` }
  done(await own.app.call('PATCH', path, { token: own.staff.staffKey, body }))
  expect((await erase({ billIds: [billId] })).erased).toMatchObject({ bills: 1, patients: 0, logins: 0, messages: 0 })
  expect(await own.staff.eventsOf(kept.billId)).toHaveLength(2)
  await erase({ contact: person.contact })
  expect(await own.tracesOf(stranger)).toContain('event_bodies')
})

test('what was sent of a booking that stays is not touched by the end of the last bill', async () => {
  const person = somebody()
  const { billId } = await bill(person)
  const { mark, contact } = person
  const leadId = await own.staff.createBooking({ first_name: mark, last_name: 'Last', contact })
  done(await own.staff.post(`/bookings/${leadId}/send`))
  const events = () => own.staff.eventsOf(leadId)
  const before = await events()
  expect((await erase({ billIds: [billId] })).erased).toMatchObject({ entries: 0, patients: 1, messages: 0 })
  expect(await events()).toEqual(before)
  await erase({ contact })
  expect(await own.tracesOf(person)).toEqual([])
})

test.each(['upload', 'amend'])('an %s that is under way while its patient is erased leaves no file', async (what) => {
  const person = somebody()
  const { billId } = await bill(person)
  const { reportId } = done(await own.staff.post(`/bills/${billId}/reports`, {}))
  const pdf = Buffer.from(`%PDF-1.4\n${person.mark} under way\n%%EOF\n`)
  if (what === 'amend') {
    done(await own.staff.putPdf(`/reports/${reportId}/upload`))
    done(await own.staff.post(`/reports/${reportId}/sign-off`))
  }
  const upload = request(
    `http://127.0.0.1:${own.app.port}/operator/accounts/${own.staff.account.id}/reports/${reportId}/${what}`,
    {
      method: 'POST',
      headers: { ...{ authorization: `Bearer ${own.staff.staffKey}`, 'content-type': 'application/pdf' }, 'content-length': pdf.length }, // prettier-ignore
    },
  )
  const answered = once(upload, 'response') as Promise<[IncomingMessage]>
  upload.write(pdf.subarray(0, 12))
  await expect.poll(() => filesIn(own.app.dataDir).some((file) => file.endsWith('.part'))).toBe(true)
  await erase({ contact: person.contact })
  upload.end(pdf.subarray(12))
  const [answer] = await answered
  answer.resume()
  expect(answer.statusCode).toBe(409)
  expect((await own.staff.post(`/bills/${billId}/reports`, {})).status).toBe(409)
  expect(await own.tracesOf(person)).toEqual([])
})

test('what is erased again by its id is not changed again, and nothing of it counts', async () => {
  const person = somebody()
  const leadId = await leadOf(person)
  const preBookingId = await own.staff.preBook({ integrator_id: person.mark })
  const { billId } = await bill(person)
  done(await own.staff.post(`/bills/${billId}/reports`, {}))
  const order = { leadIds: [leadId], preBookingIds: [preBookingId], billIds: [billId] }
  const first = (await erase(order)).erased
  expect(first).toMatchObject({ entries: 1, preBookings: 1, bills: 1, reports: 1, patients: 1, events: 2 })
  const versions = async () => {
    const { knex } = own.app.database
    const ids = [leadId, preBookingId, billId]
    return Promise.all(['entries', 'pre_bookings', 'bills'].map((table, n) => knex(table).where({ id: ids[n] }).pluck('version'))) // prettier-ignore
  }
  const before = await versions()
  const again = (await erase(order)).erased
  expect(again).toEqual(Object.fromEntries(Object.keys(again).map((what) => [what, 0])))
  expect(await versions()).toEqual(before)
})

test('a pre-booking that is billed after it was erased makes a bill without an integrator’s id', async () => {
  const person = somebody()
  const preBookingId = await own.staff.preBook({ integrator_id: person.mark })
  await erase({ preBookingIds: [preBookingId] })
  const { billId } = done(await own.staff.post(`/pre-bookings/${preBookingId}/bill`))
  const { knex } = own.app.database
  expect(await knex('bills').where({ id: billId }).pluck('integrator_id')).toEqual([null])
  const [row] = await knex('events as e')
    .join('event_bodies as b', 'b.event_id', 'e.id')
    .where({ 'e.subject_id': billId, 'e.type': 'bill.created' })
    .select('b.body')
  expect(JSON.parse(String(row.body))).toMatchObject({ integratorID: null, data: { bill: { integratorID: null } } })
})

test('the login of a patient goes with their last bill, also where a lead of theirs stays', async () => {
  const person = somebody()
  const { billId } = await bill(person)
  const token = await own.logIn(person.contact)
  await leadOf(person)
  expect((await own.reportsOf({ ...person, patientToken: token })).status).toBe(200)
  expect((await erase({ billIds: [billId] })).erased).toMatchObject({ patients: 1, logins: 1 })
  expect((await own.reportsOf({ ...person, patientToken: token })).status).toBe(401)
})

test.each([
  ['a number', 'contact'],
  ['an e-mail', 'email'],
] as const)('%s that hundreds were given is erased in steps, and each message to them', async (_what, field) => {
  const first = { ...somebody(), mark: `Zq${field}walkin` }
  const { app } = own
  const [row] = await app.database.knex('entries').where({ id: await leadOf(first) })
  const others = Array.from({ length: 300 }, (_, n) => ({
    ...row,
    id: newId(app.clock.nowMs()),
    last_name: `${n}`,
    contact: field === 'contact' ? first.contact : newContact(),
  }))
  await app.database.knex('entries').insert(others)
  for (const { contact, last_name: last } of [others[49]!, others[50]!, others[299]!]) {
    await writeTo(first, { contact, name: `${first.mark} ${last}` })
  }
  const { erased } = await erase({ [field]: first[field] })
  expect(erased).toMatchObject({ entries: 301, events: 4 })
  expect(await own.tracesOf(first)).toEqual([])
})

test('whoever orders one is told that it is done, also where another process was at it', async () => {
  const { app } = own
  const deps = {
    database: app.database,
    clock: app.clock,
    keys: app.keys,
    reportStore: app.reportStore,
    hint: () => {},
  }
  let isOver = false
  const another = (async () => {
    while (!isOver) {
      for (const id of await listRunningErasures(app.database.knex, '', 10))
        await runErasure(deps, id, monotonicMs() + 50)
    }
  })()
  for (let n = 0; n < 15; n++) {
    const { patientId } = done(await own.staff.post('/patients', { contact: newContact(), name: 'Asha Rao' }))
    const { state, erased } = done(await own.order({ patientId }))
    expect([n, state, erased.patients]).toEqual([n, 'completed', 1])
  }
  isOver = true
  await another
})
