import { afterAll, beforeAll, expect, test } from 'vitest'
import { formatSlot, renderMessage } from '../../src/messages/message-templates.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { buildTest } from '../support/builders.ts'
import { done, openStaffWorld, uploadedReport, type StaffWorld } from './staff-world.ts'

let app: TestApp
let world: StaffWorld

beforeAll(async () => {
  app = await startTestApp()
  world = await openStaffWorld(app)
})
afterAll(() => app.close())

/** What the message's event says. */
async function sent(path: string): Promise<any> {
  const { messageId, eventId, state } = done(await world.post(path))
  expect([eventId, state]).toEqual([`evt_${messageId}`, 'offered'])
  const { body } = await app.database.knex('event_bodies').where({ event_id: messageId }).first()
  expect(await app.database.knex('messages').where({ event_id: messageId })).toMatchObject([{ state: 'offered' }])
  return JSON.parse(body.toString('utf8'))
}

test('a booking is confirmed with its slot in the time zone of the account', async () => {
  const contact = '9890123456'
  const leadId = await world.createBooking({
    first_name: 'Rohan',
    last_name: 'Kulkarni',
    contact,
    integratorID: 'CRM-5',
    scheduledAt: '2026-11-21T02:00:00Z',
  })
  const event = await sent(`/bookings/${leadId}/send`)
  expect(event).toMatchObject({ type: 'booking.send', integratorID: 'CRM-5', labID: world.lab.id })
  expect(event.data.message).toMatchObject({
    kind: 'booking',
    version: 1,
    leadId,
    recipient: { contact, name: 'Rohan Kulkarni' },
    template: 'booking_confirmed',
    text: 'Dear Rohan Kulkarni, your home collection is booked for 21 Nov 2026, 07:30 AM.',
    variables: { patient_name: 'Rohan Kulkarni', visit: 'home collection', slot: '21 Nov 2026, 07:30 AM' },
    attachmentUrl: null,
  })
  done(await world.post(`/bookings/${leadId}/assign-phlebotomist`, { phlebotomistId: world.phlebotomistId }))
  const who = await sent(`/bookings/${leadId}/send-phlebotomist`)
  expect(who.data.message.text).toBe(
    'Dear Rohan Kulkarni, Santosh Pawar will collect your sample on 21 Nov 2026, 07:30 AM.',
  )
})

test('a quotation says the agreed total, or else what the catalogue asks; without either there is none', async () => {
  const dear = await buildTest(app, world.lab, { cost: 1250.5 })
  const amountOf = async (fields: object) => {
    const leadId = await world.createEntry(fields as Record<string, unknown>)
    return (await sent(`/entries/${leadId}/send-quotation`)).data.message.variables.amount
  }
  expect(await amountOf({ tests: [{ test: dear.id }] })).toBe('1250.50')
  expect(await amountOf({ tests: [{ test: dear.id }], discountAmount: 0.5 })).toBe('1250.00')
  expect(await amountOf({ totalAmount: 99 })).toBe('99.00')
  const bare = await world.createEntry({ tests: [] })
  expect((await world.post(`/entries/${bare}/send-quotation`)).body.error.code).toBe('invalid_state')
})

test('what was quoted is what the link shows and what is billed, whatever the catalogue says by then', async () => {
  const dear = await buildTest(app, world.lab, { cost: 1250.5 })
  const leadId = await world.createBooking({ tests: [{ test: dear.id }], discountAmount: 1000 })
  const entry = async () => done(await world.get(`/entries/${leadId}`))
  const before = await entry()
  const { attachmentUrl, version } = (await sent(`/entries/${leadId}/send-quotation`)).data.message
  const quoted = await entry()
  expect(version).toBe(quoted.version)
  expect([before.items[0].price, quoted.items[0].price, quoted.version - before.version]).toEqual([null, 1250.5, 1])
  await app.database.knex('tests').where({ id: dear.id }).update({ cost: 600 })
  expect((await sent(`/entries/${leadId}/send-quotation`)).data.message.variables.amount).toBe('250.50')
  expect((await entry()).version).toBe(quoted.version)
  const shown = await fetch(attachmentUrl)
  expect([shown.status, /[^\d]250\.50/.test(await shown.text())]).toEqual([200, true])
  expect(done(await world.post(`/bookings/${leadId}/bill`)).totalAmount).toBe(250.5)
})

test('a booking that is billed is quoted at what it was billed at', async () => {
  const dear = await buildTest(app, world.lab, { cost: 400 })
  const leadId = await world.createBooking({ tests: [{ test: dear.id }] })
  done(await world.post(`/bookings/${leadId}/bill`))
  await app.database.knex('tests').where({ id: dear.id }).update({ cost: 600 })
  expect((await sent(`/entries/${leadId}/send-quotation`)).data.message.variables.amount).toBe('400.00')
  expect(done(await world.get(`/entries/${leadId}`)).items[0].price).toBe(400)
})

test('of a test that a booking has twice each is quoted at what itself was billed at', async () => {
  const dear = await buildTest(app, world.lab, { cost: 400 })
  const leadId = await world.createBooking({ tests: [{ test: dear.id }, { test: dear.id, cost: 10 }] })
  const { billId } = done(await world.post(`/bookings/${leadId}/bill`))
  await app.database.knex('tests').where({ id: dear.id }).update({ cost: 600 })
  expect((await sent(`/entries/${leadId}/send-quotation`)).data.message.variables.amount).toBe('410.00')
  done(await world.post(`/bills/${billId}/delete`))
  const again = done(await world.post(`/bookings/${leadId}/bill`))
  expect(again.items.map(({ price }: { price: number }) => price)).toEqual([400, 10])
})

test('a name that is mapped once it has been billed is quoted at the price of what it is, not at that of another', async () => {
  const dear = await buildTest(app, world.lab, { cost: 400 })
  const fields = { tests: [{ test: dear.id, cost: 10 }], unmappedTests: [{ name: 'The same' }] }
  const leadId = await world.createBooking(fields)
  done(await world.post(`/bookings/${leadId}/bill`))
  done(await world.post(`/entries/${leadId}/map-items`, { items: [{ item: 2, test: dear.id }] }))
  expect((await sent(`/entries/${leadId}/send-quotation`)).data.message.variables.amount).toBe('410.00')
})

test('what costs less than its discount can not be quoted', async () => {
  const leadId = await world.createEntry({ tests: [{ test: world.test.id, cost: 50 }], discountAmount: 100 })
  const { status, body } = await world.post(`/entries/${leadId}/send-quotation`)
  expect([status, body.error.code, body.error.details]).toEqual([
    409,
    'invalid_state',
    expect.stringMatching(/discount/),
  ])
})

test('a bill and a report go to the number that the patient has now, not to the one they were made with', async () => {
  const [mistaken, right] = ['9822000001', '9822000002']
  const direct = { labID: world.lab.id, firstName: 'Rohan', contact: mistaken, tests: [{ test: world.test.id }] }
  const { billId, patientId } = done(await world.post('/bills', direct))
  const { reportId } = done(await world.post(`/bills/${billId}/reports`, {}))
  done(await world.putPdf(`/reports/${reportId}/upload`))
  done(await world.post(`/reports/${reportId}/sign-off`))
  const path = `/operator/accounts/${world.account.id}/patients/${patientId}`
  done(await app.call('PATCH', path, { token: world.staffKey, body: { contact: right, name: 'Rohan Rao' } }))
  for (const what of [`/bills/${billId}/send`, `/reports/${reportId}/send`]) {
    expect((await sent(what)).data.message.recipient).toEqual({ contact: right, name: 'Rohan Rao' })
  }
})

test('a bill and a report are sent about themselves, with the integratorID, the report with a link', async () => {
  const { billId, reportId, leadId } = await uploadedReport(world)
  expect((await world.post(`/reports/${reportId}/send`)).status).toBe(409)
  done(await world.post(`/reports/${reportId}/sign-off`))
  const report = await sent(`/reports/${reportId}/send`)
  expect(report.data.message).toMatchObject({ kind: 'report', version: 3, billId, leadId, reportId })
  expect((await fetch(report.data.message.attachmentUrl)).status).toBe(200)
  const bill = await sent(`/bills/${billId}/send`)
  expect(bill.data.message).toMatchObject({ kind: 'bill', version: 3, billId, leadId, reportId: null })
  expect(bill.data.message.text).toContain('Rs 350.00')
  const file = await fetch(bill.data.message.attachmentUrl)
  expect([file.status, file.headers.get('content-type')]).toEqual([200, 'application/pdf'])
  expect(file.headers.get('content-disposition')).toBe(`inline; filename="bill-${billId}.pdf"`)
  const shown = Buffer.from(await file.arrayBuffer()).toString('latin1')
  for (const line of [world.lab.name, `Bill ${billId}, 2026-11-20`, 'Asha', world.test.name, '350.00']) {
    expect(shown).toContain(line)
  }
})

test('the link of a bill or a quotation leads to that one document, for 7 days, and to a deleted bill no more', async () => {
  const leadId = await world.createEntry({
    first_name: 'Zoë',
    totalAmount: 77,
    unmappedTests: [{ name: 'x'.repeat(200) }],
  })
  const quotation = (await sent(`/entries/${leadId}/send-quotation`)).data.message.attachmentUrl as string
  const shown = await (await fetch(quotation)).text()
  for (const line of ['Quotation, 2026-11-20', '77.00', 'to be told']) expect(shown).toContain(line)
  const other = await world.createEntry()
  expect((await fetch(quotation.replace(leadId, other))).status).toBe(403)
  expect((await fetch(quotation.replace('/quotations/', '/bills/'))).status).toBe(403)
  expect((await fetch(quotation, { method: 'HEAD' })).status).toBe(200)
  expect((await fetch(quotation, { method: 'POST' })).status).toBe(405)

  const { billId } = done(await world.post(`/bookings/${await world.createBooking()}/bill`))
  const bill = (await sent(`/bills/${billId}/send`)).data.message.attachmentUrl as string
  expect((await fetch(bill)).status).toBe(200)
  done(await world.post(`/bills/${billId}/delete`))
  expect((await fetch(bill)).status).toBe(404)
  app.clock.advance(7 * 86_400_000 - 1000)
  expect((await fetch(quotation)).status).toBe(200)
  app.clock.advance(2000)
  expect((await fetch(quotation)).status).toBe(403)
})

test('without a contact there is nobody to send to', async () => {
  const leadId = await world.createBooking({ contact: undefined })
  const answer = await world.post(`/bookings/${leadId}/send`)
  expect([answer.status, answer.body.error.code]).toEqual([409, 'invalid_state'])
})

test('a name that looks like a variable stays what it is', () => {
  const { text } = renderMessage('bill.send', {
    patient_name: '{amount} $& {lab_name}',
    lab_name: 'Lab',
    amount: '1.00',
  })
  expect(text).toBe('Dear {amount} $& {lab_name}, your bill of Rs 1.00 from Lab is attached.')
})

test.each([
  ['2026-11-21T02:00:00Z', 'Asia/Kolkata', '21 Nov 2026, 07:30 AM'],
  ['2026-11-20T18:30:00Z', 'Asia/Kolkata', '21 Nov 2026, 12:00 AM'],
  ['2026-11-20T12:05:00Z', 'UTC', '20 Nov 2026, 12:05 PM'],
])('%s in %s reads %s', (at, timeZone, shown) => {
  expect(formatSlot(new Date(at), timeZone)).toBe(shown)
})
