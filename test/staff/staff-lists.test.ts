import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { encodeCursor } from '../../src/paging.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { buildAccount, buildLab, buildPackage, buildTest, newContact } from '../support/builders.ts'
import { done, openStaffWorld, type StaffWorld } from './staff-world.ts'

let app: TestApp
let world: StaffWorld

beforeAll(async () => {
  app = await startTestApp()
  world = await openStaffWorld(app)
})
afterAll(() => app.close())

describe('the bookings of a day', () => {
  const idsOf = async (query: Record<string, string>, of = world) =>
    done(await of.get('/bookings', query)).bookings.map((row: any) => row.leadId)

  test("are those of the day in the account's time zone, in the order of their schedule, there at once", async () => {
    const own = await openStaffWorld(app)
    const at = (scheduledAt: string) => own.createBooking({ scheduledAt })
    await at('2026-11-20T18:29:59.999Z')
    const last = await at('2026-11-21T18:29:59.999Z')
    const first = await at('2026-11-20T18:30:00Z')
    await at('2026-11-21T18:30:00Z')
    await own.createEntry({ scheduledAt: '2026-11-21T08:00:00Z' })
    expect(await idsOf({ day: '2026-11-21' }, own)).toEqual([first, last])
    const account = await buildAccount(app, { timeZone: 'America/New_York' })
    const west = await openStaffWorld(app, { account, lab: await buildLab(app, account) })
    // The clocks are set back on this day: it has 25 hours.
    const early = await west.createBooking({ scheduledAt: '2026-11-01T00:00:00' })
    const late = await west.createBooking({ scheduledAt: '2026-11-02T04:59:59Z' })
    await west.createBooking({ scheduledAt: '2026-11-02T05:00:00Z' })
    expect(await idsOf({ day: '2026-11-01' }, west)).toEqual([early, late])
    // Times end with it.
    const ultimate = await west.createBooking({ scheduledAt: '9999-12-31T23:59:59.999Z' })
    expect(await idsOf({ day: '9999-12-31' }, west)).toEqual([ultimate])
    for (const day of ['2026-02-30', '2026-13-01', '20261101', 'x']) {
      expect((await own.get('/bookings', { day })).status).toBe(400)
    }
  })

  test('are found by phlebotomist, lab and status', async () => {
    const lab = await buildLab(app, world.account)
    const day = '2026-12-24'
    const here = await world.createBooking({ scheduledAt: `${day}T10:00:00` })
    const there = await world.createBooking({ branchID: lab.id, tests: [], scheduledAt: `${day}T11:00:00` })
    const { phlebotomistId } = world
    done(await world.post(`/bookings/${here}/assign-phlebotomist`, { phlebotomistId }))
    expect(await idsOf({ day, phlebotomistId })).toEqual([here])
    expect(await idsOf({ day, labID: lab.id })).toEqual([there])
    expect(await idsOf({ day, status: 'Scheduled' })).toEqual([there])
    expect(await idsOf({ day, phlebotomistId, labID: lab.id })).toEqual([])
    expect(await idsOf({ day, phlebotomistId: `${phlebotomistId} ` })).toEqual([])
    expect((await world.get('/bookings', { status: 'Lost' })).status).toBe(400)
    const other = await openStaffWorld(app)
    expect(await idsOf({ day, phlebotomistId }, other)).toEqual([])
  })

  test('come in pages without a gap or a repeat, also where several have one time', async () => {
    const own = await openStaffWorld(app)
    const times = ['09:00', '10:00', '10:00', '10:00', '11:00']
    for (const time of times) await own.createBooking({ scheduledAt: `2026-11-21T${time}:00` })
    const seen: any[] = []
    let cursor: string | null = null
    do {
      const page: any = done(await own.get('/bookings', { limit: '2', ...(cursor === null ? {} : { cursor }) }))
      seen.push(...page.bookings)
      cursor = page.nextCursor
    } while (cursor !== null)
    expect(new Set(seen.map(({ leadId }) => leadId)).size).toBe(times.length)
    expect(seen.map(({ scheduledAt }) => scheduledAt)).toEqual(seen.map(({ scheduledAt }) => scheduledAt).toSorted())
    for (const time of ['x', '+275760-09-13T00:00:00.000Z', '-271821-04-20T00:00:00.000Z'])
      expect((await own.get('/bookings', { cursor: encodeCursor([time, seen[0].leadId]) })).status).toBe(400)
    expect((await own.get('/bookings', { cursor: encodeCursor(['2026-11-20T10:15:00.000Z', 'y']) })).status).toBe(400)
  })
})

describe('unmapped items', () => {
  const unmapped = async () =>
    done(await world.get('/entries', { unmapped: 'true' })).entries.map((row: any) => row.leadId)

  test('are listed with their entry until staff say what they are; the bill then has them as mapped', async () => {
    const pack = await buildPackage(app, world.lab, [world.test], { total: 1500 })
    const leadId = await world.createBooking({
      unmappedTests: [{ name: 'Allergy panel', cost: 900 }],
      unmappedPackages: [{ name: 'Full check' }],
    })
    expect(await unmapped()).toEqual([leadId])
    const map = (items: object[]) => world.post(`/entries/${leadId}/map-items`, { items })
    const panel = await buildTest(app, world.lab, { name: 'Allergy Panel, Food', cost: 2400 })
    const first = done(await map([{ item: 2, test: panel.id }]))
    expect(first).toMatchObject({ version: 2 })
    expect(first.items[1]).toEqual({ item: 2, kind: 'test', id: panel.id, name: 'Allergy Panel, Food', price: 900 })
    expect(await unmapped()).toEqual([leadId])
    done(await map([{ item: 3, package: pack.id, price: 1200 }]))
    expect(await unmapped()).toEqual([])
    expect((await map([{ item: 3, package: pack.id }])).body.error.code).toBe('invalid_state')
    const bill = done(await world.post(`/bookings/${leadId}/bill`))
    expect([bill.items.map(({ id }: any) => id), bill.totalAmount]).toEqual([[world.test.id, panel.id, pack.id], 2450])
    expect((await world.eventsOf(leadId)).map(({ type }) => type)).toEqual(['booking.created'])
  })

  test('of what was cancelled, or erased, nobody has to resolve any more', async () => {
    const [stays, cancelled, erased] = [
      await world.createEntry({ unmappedTests: [{ name: 'A' }] }),
      await world.createBooking({ unmappedTests: [{ name: 'B' }] }),
      await world.createEntry({ unmappedTests: [{ name: 'C' }] }),
    ]
    expect((await unmapped()).sort()).toEqual([stays, cancelled, erased].sort())
    done(await world.post(`/bookings/${cancelled}/cancel`))
    done(await world.post('/erasures', { leadIds: [erased] }, world.adminKey))
    expect(await unmapped()).toEqual([stays])
    done(await world.post('/erasures', { leadIds: [stays] }, world.adminKey))
  })

  test('have a name', async () => {
    for (const field of ['unmappedTests', 'unmappedPackages']) {
      const body = { labID: world.lab.id, first_name: 'Asha', contact: newContact(), [field]: [{ name: '' }] }
      const answer = await world.post('/entries', body)
      expect([answer.status, answer.body.error.fields[0].field]).toEqual([400, `${field}.0.name`])
    }
  })

  test('are mapped all or none, to what the lab has', async () => {
    const leadId = await world.createEntry({ unmappedTests: [{ name: 'A' }, { name: 'B' }] })
    const map = (items: object[]) => world.post(`/entries/${leadId}/map-items`, { items })
    const elsewhere = await buildTest(app, await buildLab(app, world.account))
    const inactive = await buildTest(app, world.lab, { active: false })
    for (const [items, field] of [
      [
        [
          { item: 2, test: world.test.id },
          { item: 9, test: world.test.id },
        ],
        'items.1.item',
      ],
      [
        [
          { item: 2, test: world.test.id },
          { item: 3, test: elsewhere.id },
        ],
        'items.1.test',
      ],
      [[{ item: 2, package: world.test.id }], 'items.0.package'],
      [[{ item: 2, test: inactive.id }], 'items.0.test'],
    ] as const) {
      const answer = await map([...items])
      expect([answer.status, answer.body.error.fields[0].field]).toEqual([400, field])
    }
    expect((await map([{ item: 2 }])).status).toBe(400)
    expect((await map([{ item: 2, test: world.test.id, package: world.test.id }])).status).toBe(400)
    expect((await map([])).status).toBe(400)
    const twice = await map([
      { item: 2, test: world.test.id },
      { item: 1, test: world.test.id },
    ])
    expect(twice.status).toBe(409)
    expect(done(await world.get(`/entries/${leadId}`))).toMatchObject({
      version: 1,
      items: [{}, { id: null }, { id: null }],
    })
  })
})

test('entries are listed by phase and lab, the oldest first', async () => {
  const own = await openStaffWorld(app)
  const lead = await own.createEntry()
  app.clock.advance(1)
  const booking = await own.createBooking()
  const idsOf = async (query: Record<string, string>) =>
    done(await own.get('/entries', query)).entries.map((row: any) => row.leadId)
  expect(await idsOf({})).toEqual([lead, booking])
  expect(await idsOf({ phase: 'lead' })).toEqual([lead])
  expect(await idsOf({ labID: own.lab.id, phase: 'booking' })).toEqual([booking])
  expect(await idsOf({ labID: 'x' })).toEqual([])
  expect(await idsOf({ unmapped: 'false' })).toEqual([lead, booking])
})

describe('the lock of a contact', () => {
  test('is shown and lifted by staff, so that the patient can log in again', async () => {
    const contact = newContact()
    const { token } = await app.accessTokens.issue(world.account.id)
    const ask = () => app.call('POST', '/client/patient/getLoginOTP', { token, body: { contact } })
    const lock = async () => done(await world.get('/otp-lock', { contact }))
    expect(await lock()).toEqual({ locked: false, lockedUntil: null, failuresInRow: 0 })
    for (let code = 0; code < 4; code++) {
      const { otpToken } = (await ask()).body
      for (let n = 0; n < 5; n++) {
        await app.call('POST', '/client/patient/verifyLoginOTP', { token, body: { otp: '000000', otpToken } })
      }
      app.clock.advance(31_000)
    }
    expect(await lock()).toMatchObject({ locked: true, failuresInRow: 20, lockedUntil: expect.any(String) })
    expect((await ask()).status).toBe(429)
    expect((await world.post('/otp-lock/lift', { contact: '123' })).status).toBe(400)
    expect(done(await world.post('/otp-lock/lift', { contact })).locked).toBe(false)
    expect(await lock()).toEqual({ locked: false, lockedUntil: null, failuresInRow: 0 })
    expect((await ask()).status).toBe(200)
  })

  test("is the account's own", async () => {
    const other = await openStaffWorld(app)
    expect((await world.get('/otp-lock', { contact: newContact() }, other.staffKey)).status).toBe(404)
    expect((await world.post('/otp-lock/lift', { contact: newContact() }, other.staffKey)).status).toBe(404)
  })
})
