import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { startTestApp, type TestApp } from '../support/app.ts'
import { countAudited } from '../support/audited.ts'
import { buildAccount, buildLab, newContact } from '../support/builders.ts'
import { done, openStaffWorld, type StaffWorld } from './staff-world.ts'

let app: TestApp
let world: StaffWorld

beforeAll(async () => {
  app = await startTestApp()
  world = await openStaffWorld(app)
})
afterAll(() => app.close())

const assign = (leadId: string, phlebotomistId = world.phlebotomistId) =>
  world.post(`/bookings/${leadId}/assign-phlebotomist`, { phlebotomistId })

describe('a phlebotomist', () => {
  test('is assigned by staff; the event names who it was before, and versions follow each other', async () => {
    const leadId = await world.createBooking()
    const assigned = done(await assign(leadId))
    expect(assigned).toMatchObject({
      version: 2,
      bookingStatus: 'Phlebotomist Assigned',
      phlebotomist: { phlebotomistId: world.phlebotomistId, name: 'Santosh Pawar' },
    })
    done(await assign(leadId, world.otherPhlebotomistId))
    const [created, first, second] = await world.eventsOf(leadId)
    expect([created.type, first.type, second.type]).toEqual([
      'booking.created',
      'booking.phlebotomist_assigned',
      'booking.phlebotomist_assigned',
    ])
    expect(first.data.booking.phlebotomist).toEqual({ id: world.phlebotomistId, name: 'Santosh Pawar' })
    expect(first.data.booking).not.toHaveProperty('previousPhlebotomist')
    expect(second.data.booking).toMatchObject({
      version: 3,
      phlebotomist: { id: world.otherPhlebotomistId, name: 'Meena Jadhav' },
      previousPhlebotomist: { id: world.phlebotomistId, name: 'Santosh Pawar' },
    })
  })

  test('who has the booking already is refused, as are unknown ones, foreign ones and those who are not active', async () => {
    const leadId = await world.createBooking()
    done(await assign(leadId))
    expect((await assign(leadId)).body.error.code).toBe('invalid_state')
    const other = await openStaffWorld(app)
    const gone = done(await world.post('/phlebotomists', { name: 'Gone' }, world.adminKey)).phlebotomistId
    for (let n = 0; n < 2; n++) {
      expect(done(await world.post(`/phlebotomists/${gone}/deactivate`, undefined, world.adminKey)).active).toBe(false)
    }
    expect(await countAudited(app, 'deactivatePhlebotomist', gone)).toBe(1)
    for (const id of ['x', other.phlebotomistId, gone, `${world.otherPhlebotomistId} `]) {
      const answer = await assign(leadId, id)
      expect([answer.status, answer.body.error.code]).toEqual([400, 'unknown_phlebotomist'])
    }
    expect(done(await world.get(`/entries/${leadId}`)).version).toBe(2)
  })

  test('is made and taken off by admins only; staff list them', async () => {
    expect((await world.post('/phlebotomists', { name: 'Ravi' })).status).toBe(403)
    expect((await world.post(`/phlebotomists/${world.phlebotomistId}/deactivate`)).status).toBe(403)
    expect((await world.post('/phlebotomists/x/deactivate', undefined, world.adminKey)).status).toBe(404)
    const first = done(await world.get('/phlebotomists', { limit: '1' }))
    expect(first.phlebotomists).toMatchObject([{ name: 'Santosh Pawar', active: true }])
    const second = done(await world.get('/phlebotomists', { limit: '1', cursor: first.nextCursor }))
    expect(second.phlebotomists).toMatchObject([{ name: 'Meena Jadhav' }])
    expect((await world.get('/phlebotomists', { cursor: 'x' })).status).toBe(400)
  })
})

describe('a lead', () => {
  test('becomes a booking with the defaults of one, and tells it as booking.created', async () => {
    const leadId = await world.createEntry({ integratorID: 'CRM-77' })
    app.clock.advance(60_000)
    const wish = { bookingType: 'Lab Visit', scheduledAt: '2026-11-23T09:00:00' }
    const booking = done(await world.post(`/entries/${leadId}/convert`, wish))
    const convertedAt = app.clock.now().toISOString()
    expect(booking).toMatchObject({
      version: 2,
      phase: 'booking',
      bookingStatus: 'Scheduled',
      paymentStatus: 'Pending',
      convertedAt,
      scheduledAt: '2026-11-23T03:30:00.000Z',
    })
    const [, event] = await world.eventsOf(leadId)
    expect(event).toMatchObject({ type: 'booking.created', timestamp: convertedAt, integratorID: 'CRM-77' })
    expect(event.data.booking).toMatchObject({ leadId, version: 2, convertedAt, bookingStatus: 'Scheduled' })
  })

  test('that knows where and when needs nothing more; one that does not is refused with what is missing', async () => {
    const known = { bookingType: 'Home Collection', scheduledAt: '2026-11-23T09:00:00Z', paymentStatus: 'Paid' }
    const leadId = await world.createEntry(known)
    expect(done(await world.post(`/entries/${leadId}/convert`))).toMatchObject({ paymentStatus: 'Paid' })
    const bare = await world.createEntry()
    for (const [body, field] of [
      [{}, 'bookingType'],
      [{ bookingType: 'Lab Visit' }, 'scheduledAt'],
      [{ bookingType: 'Lab Visit', scheduledAt: '2026-02-30T09:00:00Z' }, 'scheduledAt'],
      [{ ...known, paymentMethod: 'Barter' }, 'paymentMethod'],
    ] as const) {
      const answer = await world.post(`/entries/${bare}/convert`, body)
      expect([answer.status, answer.body.error.fields[0].field]).toEqual([400, field])
    }
    expect((await world.eventsOf(bare)).length).toBe(1)
  })

  test('and a booking are made by staff as by integrators: event, notification, telecaller, one a day', async () => {
    const own = await openStaffWorld(app)
    const contact = newContact()
    const lead = { labID: own.lab.id, first_name: 'Asha', contact, tests: [{ test: own.test.id }] }
    const made = done(await own.post('/entries', lead))
    expect(made).toMatchObject({ phase: 'lead', integratorID: null, version: 1, items: [{ item: 1, id: own.test.id }] })
    const again = await own.post('/entries', {
      ...lead,
      phase: 'booking',
      bookingType: 'Lab Visit',
      scheduledAt: '2026-11-23T09:00:00Z',
    })
    expect([again.status, again.body.error.leadId]).toEqual([409, made.leadId])
    const booking = { ...lead, contact: newContact(), integratorID: 'I-1', phase: 'booking', bookingType: 'Lab Visit' }
    expect((await own.post('/entries', booking)).body.error.fields[0].field).toBe('scheduledAt')
    done(await own.post('/entries', { ...booking, scheduledAt: '2026-11-23T09:00:00Z' }))
    expect((await own.eventTypes()).sort()).toEqual(['booking.created', 'lead.created'])
    const { notifications } = done(await own.get('/notifications'))
    expect(notifications.map(({ kind }: any) => kind).sort()).toEqual(['BOOKING_CONFIRMED', 'NEW_LEAD'])
    const [event] = await own.eventsOf(made.leadId)
    expect([event.integratorID, event.data.lead.integratorID]).toEqual([null, null])
    for (const [fields, code] of [
      [{ labID: 'x' }, 'unknown_lab'],
      [{ labID: world.lab.id }, 'unknown_lab'],
      [{ tests: [{ test: 'x' }] }, 'unknown_test'],
      [{ corporateUser: 'x' }, 'unknown_party'],
    ] as const) {
      const refused = await own.post('/entries', { ...lead, contact: newContact(), ...fields })
      expect([refused.status, refused.body.error.code]).toEqual([400, code])
    }
  })

  test('and a booking are 409 in a lab that is inactive, after every id that is unknown', async () => {
    const { id: labID } = await buildLab(app, world.account, { active: false })
    const lead = { labID, first_name: 'Asha', contact: newContact() }
    const booking = { ...lead, phase: 'booking', bookingType: 'Lab Visit', scheduledAt: '2026-11-23T09:00:00Z' }
    const details = 'the lab is inactive: activate it first'
    for (const body of [lead, booking]) {
      const { status, body: refusal } = await world.post('/entries', body)
      expect([status, refusal.error]).toEqual([409, { details, code: 'invalid_state' }])
      const unknown = await world.post('/entries', { ...body, tests: [{ test: 'x' }], corporateUser: 'x' })
      expect([unknown.status, unknown.body.error.fields.length]).toEqual([400, 2])
    }
    done(await world.post('/entries', { ...lead, labID: world.lab.id }))
  })
})

describe('a schedule', () => {
  test('that changes is told with the time before; the same time again is refused', async () => {
    const leadId = await world.createBooking({ scheduledAt: '2026-11-21T07:30:00+05:30' })
    done(await assign(leadId))
    const moved = done(await world.post(`/bookings/${leadId}/reschedule`, { scheduledAt: '2026-11-22T08:00:00' }))
    expect(moved).toMatchObject({ scheduledAt: '2026-11-22T02:30:00.000Z', bookingStatus: 'Phlebotomist Assigned' })
    const event = (await world.eventsOf(leadId)).at(-1)
    expect(event.data.booking).toMatchObject({
      version: 3,
      scheduledAt: '2026-11-22T02:30:00.000Z',
      previousScheduledAt: '2026-11-21T02:00:00.000Z',
      phlebotomist: { id: world.phlebotomistId },
    })
    const same = await world.post(`/bookings/${leadId}/reschedule`, { scheduledAt: '2026-11-22T02:30:00Z' })
    expect([same.status, same.body.error.code]).toEqual([409, 'invalid_state'])
    const impossible = await world.post(`/bookings/${leadId}/reschedule`, { scheduledAt: '2026-11-31T02:30:00Z' })
    expect(impossible.status).toBe(400)
  })
})

test('a refusal says the state and what is possible in it', async () => {
  const leadId = await world.createBooking()
  const early = await world.post(`/bookings/${leadId}/collect-sample`)
  expect([early.status, early.body.error]).toEqual([
    409,
    {
      code: 'invalid_state',
      details:
        'the booking is Scheduled: it can not be marked as collected; it can be given a phlebotomist, rescheduled, cancelled, mapped, billed, quoted or confirmed by message',
    },
  ])
  done(await world.post(`/bookings/${leadId}/cancel`))
  const late = await world.post(`/bookings/${leadId}/cancel`)
  expect(late.body.error.details).toBe(
    'the booking is Cancelled: it can not be cancelled; nothing more can be done with it',
  )
})

test('of 24 of one action at once one is done, and one event tells of it', async () => {
  const leadId = await world.createBooking()
  done(await assign(leadId))
  const arrivals = await Promise.all(Array.from({ length: 24 }, () => world.post(`/bookings/${leadId}/arrive`)))
  expect(arrivals.map(({ status }) => status).sort()).toEqual([200, ...Array(23).fill(409)])
  const events = await world.eventsOf(leadId)
  expect(events.map(({ data }) => data.booking.version)).toEqual([1, 2, 3])
  const ends = await Promise.all([
    ...Array.from({ length: 8 }, () => world.post(`/bookings/${leadId}/cancel`)),
    ...Array.from({ length: 8 }, () => world.post(`/bookings/${leadId}/collect-sample`)),
  ])
  expect(ends.filter(({ status }) => status === 200)).toHaveLength(1)
  expect(ends.filter(({ status }) => status === 409)).toHaveLength(15)
})

test('another account can neither see nor change an entry, and every change is kept with who made it', async () => {
  const leadId = await world.createBooking()
  const other = await openStaffWorld(app)
  for (const path of ['assign-phlebotomist', 'arrive', 'collect-sample', 'submit-sample', 'cancel', 'bill', 'send']) {
    const body = path === 'assign-phlebotomist' ? { phlebotomistId: other.phlebotomistId } : undefined
    expect((await other.post(`/bookings/${leadId}/${path}`, body)).status).toBe(404)
    expect((await world.post(`/bookings/${leadId}/${path}`, body, other.staffKey)).status).toBe(404)
  }
  expect((await other.get(`/entries/${leadId}`)).status).toBe(404)
  expect((await other.post(`/entries/${leadId}/convert`, {})).status).toBe(404)
  done(await assign(leadId))
  const rows = await app.database.knex('audit_entries').where({ account_id: world.account.id }).orderBy('id')
  const mine = rows.filter(({ targets }) => targets.includes(leadId))
  expect(mine.map(({ operation }) => operation)).toEqual(['assignPhlebotomist'])
})

test('neither a name nor a contact of a patient reaches the log or the audit', async () => {
  const account = await buildAccount(app)
  const own = await openStaffWorld(app, { account, lab: await buildLab(app, account) })
  const contact = newContact()
  const leadId = await own.createBooking({ first_name: 'Canary4712', contact })
  done(await own.post(`/bookings/${leadId}/assign-phlebotomist`, { phlebotomistId: own.phlebotomistId }))
  await own.post(`/bookings/${leadId}/collect-sample`)
  const { billId } = done(await own.post(`/bookings/${leadId}/bill`))
  done(await own.post(`/bills/${billId}/send`))
  expect((await own.get('/otp-lock', { contact })).status).toBe(200)
  const kept = JSON.stringify([app.logs(), await app.database.knex('audit_entries')])
  expect(kept).not.toContain('Canary4712')
  expect(kept).not.toContain(contact)
})
