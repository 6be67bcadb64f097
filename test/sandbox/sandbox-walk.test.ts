import { afterAll, beforeAll, expect, test } from 'vitest'
import { EVENT_TYPES } from '../../src/events/event-types.ts'
import { client, startTestApp, type TestApp } from '../support/app.ts'
import { buildAccount, buildLab } from '../support/builders.ts'
import { done, openStaffWorld, type StaffWorld } from '../staff/staff-world.ts'

let app: TestApp

beforeAll(async () => {
  app = await startTestApp()
})
afterAll(() => app.close())

async function sandbox(): Promise<StaffWorld> {
  const account = await buildAccount(app, { sandbox: true })
  return openStaffWorld(app, { account, lab: await buildLab(app, account) })
}

async function walk(world: StaffWorld, leadId: string, fields: Record<string, unknown> = {}) {
  const { token } = await app.accessTokens.issue(world.account.id)
  const body = { labID: world.lab.id, leadId, ...fields }
  return app.call('POST', '/client/sandbox/walk', { token, body })
}

test('two walks show an integrator all 17 events, each as the contract says and with its own integratorID', async () => {
  const world = await sandbox()
  const leadId = await world.createEntry({ integratorID: 'MINE-1' })
  const { data } = done(await walk(world, leadId))
  expect(data).toEqual({
    leadId,
    bookingStatus: 'Sample Submitted',
    billId: expect.any(String),
    reportId: expect.any(String),
  })
  const other = await world.createBooking({ integratorID: 'MINE-1' })
  expect(done(await walk(world, other, { ending: 'cancelled' })).data).toEqual({
    leadId: other,
    bookingStatus: 'Cancelled',
    billId: null,
    reportId: null,
  })
  const types = await world.eventTypes()
  expect([...new Set(types)].sort()).toEqual([...EVENT_TYPES].sort())
  const rows = await app.database
    .knex('events as e')
    .join('event_bodies as b', 'b.event_id', 'e.id')
    .where({ 'e.account_id': world.account.id })
    .select('b.body')
  for (const { body } of rows) {
    const event = JSON.parse(body.toString('utf8'))
    const name = event.type.split(/[._]/).map((word: string) => word[0]!.toUpperCase() + word.slice(1))
    client.checkSchema(`#/components/schemas/${name.join('')}Event`, event)
    expect(event.integratorID).toBe('MINE-1')
  }
  const report = (await world.eventsOf(data.reportId)).find(({ type }) => type === 'report.completed')
  const file = await fetch(report.data.report.reportUrl)
  expect([file.status, (await file.text()).slice(0, 5)]).toEqual([200, '%PDF-'])
  expect(done(await world.get(`/bills/${data.billId}`))).toMatchObject({ status: 'completed', integratorID: 'MINE-1' })
})

test('an entry without a contact is walked without messages, and one that was walked is refused', async () => {
  const world = await sandbox()
  const leadId = await world.createEntry({ contact: undefined, tests: [], unmappedTests: [{ name: 'Allergy panel' }] })
  done(await walk(world, leadId))
  expect((await world.eventTypes()).filter((type) => type.endsWith('.send'))).toEqual([])
  const count = (await world.eventTypes()).length
  const again = await walk(world, leadId)
  expect([again.status, again.body.error]).toEqual([
    409,
    {
      code: 'invalid_state',
      details: 'the booking is Sample Submitted: a walk begins with a lead or a booking that is Scheduled',
    },
  ])
  expect(await world.eventTypes()).toHaveLength(count)
})

test('a booking of the last day that there is is walked as well', async () => {
  const world = await sandbox()
  const leadId = await world.createBooking({ scheduledAt: '9999-12-31T12:00:00Z' })
  expect(done(await walk(world, leadId, { ending: 'cancelled' })).data).toMatchObject({ bookingStatus: 'Cancelled' })
})

test('an entry that says nothing but a name and a contact is walked to its end', async () => {
  const world = await sandbox()
  const { data } = done(await walk(world, await world.createEntry({ tests: undefined })))
  expect(done(await world.get(`/bills/${data.billId}`))).toMatchObject({
    status: 'completed',
    items: [],
    totalAmount: 0,
  })
  expect(await world.eventTypes()).not.toContain('quotation.send')
})

test('a live account is refused, and nothing happens to its entry', async () => {
  const world = await openStaffWorld(app)
  const leadId = await world.createBooking()
  const answer = await walk(world, leadId)
  expect([answer.status, answer.body.error.code]).toEqual([403, 'sandbox_only'])
  expect(await world.eventTypes()).toEqual(['booking.created'])
})

test('an entry or a lab of another account, or of another lab, is refused like an unknown one', async () => {
  const world = await sandbox()
  const foreign = await sandbox()
  const leadId = await foreign.createBooking()
  for (const id of [leadId, 'x', `${await world.createBooking()} `]) {
    const answer = await walk(world, id)
    expect([answer.status, answer.body.error.code]).toEqual([400, 'unknown_lead'])
  }
  const own = await world.createBooking()
  const elsewhere = await buildLab(app, world.account)
  expect((await walk(world, own, { labID: elsewhere.id })).body.error.code).toBe('unknown_lead')
  expect((await walk(world, own, { labID: foreign.lab.id })).status).toBe(403)
  expect((await walk(world, own, { labID: undefined })).status).toBe(400)
})

test('a discount above what the items cost is taken off as far as they cost something, and there is no quotation', async () => {
  const world = await sandbox()
  const leadId = await world.createEntry({
    discountAmount: 500,
    unmappedTests: [{ name: 'Allergy panel', price: 100 }],
  })
  const { data } = done(await walk(world, leadId))
  expect(done(await world.get(`/bills/${data.billId}`))).toMatchObject({ discountAmount: 500, totalAmount: 0 })
  expect(await world.eventTypes()).not.toContain('quotation.send')
  const other = await world.createEntry({ discountAmount: 500 })
  expect(done(await walk(world, other, { ending: 'cancelled' })).data.bookingStatus).toBe('Cancelled')
})

test('walks at once on a new sandbox share two phlebotomists', async () => {
  const world = await sandbox()
  const { knex } = app.database
  const known = await knex('phlebotomists').where({ account_id: world.account.id }).pluck('id')
  await knex('phlebotomists').where({ account_id: world.account.id }).update({ active: false })
  const leadIds = await Promise.all([1, 2, 3, 4, 5].map(() => world.createEntry()))
  const answers = await Promise.all(leadIds.map((leadId) => walk(world, leadId, { ending: 'cancelled' })))
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200])
  const made = await knex('phlebotomists').where({ account_id: world.account.id }).whereNotIn('id', known).pluck('name')
  expect(made.sort()).toEqual(['Sandbox Phlebotomist One', 'Sandbox Phlebotomist Two'])
})
