/**
 * Proves of the specification:
 * - "If a lead or booking with the same contact (or email) was already ingested today for the account, the call returns 409."
 * And of the decisions: today is the calendar day in the account's time zone; a refused call changes nothing.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import type { Test } from '../../src/catalogue/tests-repository.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import {
  bookingBody,
  buildAccount,
  buildLab,
  buildTelecaller,
  buildTest,
  leadBody,
  newContact,
  type TestAccount,
} from '../support/builders.ts'

let app: TestApp
let otherApp: TestApp
let account: TestAccount
let lab: Lab
let cbc: Test

beforeAll(async () => {
  app = await startTestApp()
  account = await buildAccount(app)
  lab = await buildLab(app, account)
  cbc = await buildTest(app, lab)
  await buildTelecaller(app, account)
  await buildTelecaller(app, account)
  otherApp = await startTestApp({ mysqlUrl: app.mysqlUrl })
})
afterAll(async () => {
  await otherApp.close()
  await app.close()
})

const create = (body: Record<string, unknown>, caller = account, via = app) =>
  via.call('POST', '/client/crm/lead/create', { token: caller.token, body })
const countRows = async () => {
  const tables = [
    'entries', 'entry_items', 'entry_day_guards', 'events', 'event_bodies', 'unrouted_events', 'staff_notifications',
  ] // prettier-ignore
  const counts = await Promise.all(tables.map((table) => app.database.knex(table).count({ n: '*' }).first()))
  return Object.fromEntries(tables.map((table, index) => [table, Number(counts[index]!.n)]))
}
/** Everything that a refused call could have changed. */
const readState = async () => [
  await countRows(),
  await app.database.knex('telecaller_turns').orderBy('account_id'),
  app.hints() + otherApp.hints(),
]
/** One request through each process in turn, all at once. */
const createAll = (bodies: Record<string, unknown>[]) =>
  Promise.all(bodies.map((body, n) => create(body, account, n % 2 === 0 ? app : otherApp)))

function requireNoSharing(pairs: { contact: string; email: string }[], statuses: number[]): void {
  expect(new Set(statuses)).toEqual(new Set([200, 409]))
  const accepted = pairs.filter((_, index) => statuses[index] === 200)
  expect(new Set(accepted.map(({ contact }) => contact)).size).toBe(accepted.length)
  expect(new Set(accepted.map(({ email }) => email)).size).toBe(accepted.length)
  const clashes = (pair: (typeof pairs)[number]) =>
    accepted.some(({ contact, email }) => contact === pair.contact || email === pair.email)
  expect(pairs.every(clashes)).toBe(true)
}

const SPELLINGS = ['burst@example.in', ' Burst@example.in', 'BURST@EXAMPLE.IN  ', '\tburst@Example.IN']

describe('the same contact or e-mail on one day', () => {
  test('is 409 with the entry that is there, for leads and bookings alike, and changes nothing', async () => {
    const contact = newContact()
    const first = (await create(leadBody(lab, { contact, email: 'one@example.in' }))).body
    const before = await readState()
    for (const body of [
      bookingBody(lab, { contact, email: 'other@example.in' }),
      leadBody(lab, { email: '  ONE@Example.IN ' }),
      leadBody(await buildLab(app, account), { contact, tests: [] }),
      leadBody(lab, { contact, country_code: '+1' }),
    ]) {
      const answer = await create(body)
      expect([answer.status, answer.body.error.leadId]).toEqual([409, first.leadId])
    }
    expect(await readState()).toEqual(before)
    // The refused ones have not taken the e-mail that they came with either.
    expect((await create(leadBody(lab, { email: 'other@example.in' }))).status).toBe(200)
  })

  test('does not concern another account, and an empty e-mail is none', async () => {
    const body = leadBody(lab, { email: ' ' })
    expect((await create(body)).status).toBe(200)
    expect((await create(leadBody(lab, { email: '' }))).status).toBe(200)
    expect((await create(leadBody(lab, { email: ' ' }))).status).toBe(200)
    const other = await buildAccount(app)
    const otherLab = await buildLab(app, other)
    expect((await create({ ...body, branchID: otherLab.id }, other)).status).toBe(200)
  })

  test.each([
    ['Asia/Kolkata', '2026-11-20T18:29:59.999Z', '2026-11-20T18:30:00.000Z'],
    // The day on which the clocks were set forward had 23 hours, the one on which they are set back 25.
    ['America/New_York', '2026-03-09T03:59:59.999Z', '2026-03-09T04:00:00.000Z'],
    ['America/New_York', '2026-11-02T04:59:59.999Z', '2026-11-02T05:00:00.000Z'],
    ['Pacific/Kiritimati', '2026-11-20T09:59:59.999Z', '2026-11-20T10:00:00.000Z'],
  ])("ends at midnight of the account's zone, %s", async (timeZone, last, next) => {
    const local = await buildAccount(app, { timeZone })
    const body = leadBody(await buildLab(app, local))
    const opened = app.clock.now().toISOString()
    const at = async (time: string) => {
      app.clock.set(time)
      const { token } = await app.accessTokens.issue(local.id)
      return (await create(body, { ...local, token })).status
    }
    expect(await at(last)).toBe(200)
    expect(await at(last)).toBe(409)
    expect(await at(next)).toBe(200)
    expect(await at(next)).toBe(409)
    app.clock.set(opened)
  })

  test.each([
    ['Asia/Kolkata', '2026-11-20T18:29:59.999Z', '2026-11-20T18:30:00.000Z'],
    // The clocks were set forward at two, and are set back at two; in Havana at midnight, which did not come, and comes twice.
    ['America/New_York', '2026-03-08T04:59:59.999Z', '2026-03-08T05:00:00.000Z'],
    ['America/New_York', '2026-11-02T04:59:59.999Z', '2026-11-02T05:00:00.000Z'],
    ['America/Havana', '2026-03-08T04:59:59.999Z', '2026-03-08T05:00:00.000Z'],
    ['America/Havana', '2026-11-02T04:59:59.999Z', '2026-11-02T05:00:00.000Z'],
  ])(
    'is one entry of each day where two processes stand on both sides of midnight, %s from %s on',
    async (timeZone, last, next) => {
      const local = await buildAccount(app, { timeZone })
      const body = leadBody(await buildLab(app, local), { email: 'midnight@example.in' })
      const opened = app.clock.now().toISOString()
      app.clock.set(last)
      const { token } = await app.accessTokens.issue(local.id)
      otherApp.clock.set(next)
      const calls = Array.from({ length: 64 }, (_, n) =>
        create(body, { ...local, token }, n % 2 === 0 ? app : otherApp),
      )
      const answers = await Promise.all(calls)
      for (const each of [app, otherApp]) each.clock.set(opened)
      const sides = [0, 1].map((side) => answers.filter((_, n) => n % 2 === side))
      for (const [side, ofSide] of sides.entries()) {
        const won = ofSide.filter(({ status }) => status === 200)
        expect(won).toHaveLength(1)
        const { created_at: createdAt } = await app.database.knex('entries').where({ id: won[0]!.body.leadId }).first()
        expect(createdAt.toISOString()).toBe([last, next][side])
        // Who is refused is shown the entry of its own day.
        const shown = ofSide.filter(({ status }) => status === 409).map(({ body: answer }) => answer.error.leadId)
        expect(shown).toEqual(Array(31).fill(won[0]!.body.leadId))
      }
    },
  )

  test.each([
    ['contact', () => ({})],
    ['e-mail, in whatever case and spaces', (n: number) => ({ contact: newContact(), email: SPELLINGS[n % 4] })],
  ])('64 times at once through two processes is one entry and 63 times 409: the same %s', async (_, fieldsOf) => {
    const body = leadBody(lab, { tests: [{ test: cbc.id }] })
    const bodies = Array.from({ length: 64 }, (_, n) => ({ ...body, ...fieldsOf(n) }))
    const before = await countRows()
    const answers = await createAll(bodies)
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1)
    expect(answers.filter(({ status }) => status === 409)).toHaveLength(63)
    const winner = answers.find(({ status }) => status === 200)!.body.leadId
    expect(new Set(answers.map(({ body: answer }) => answer.leadId ?? answer.error.leadId))).toEqual(new Set([winner]))
    const after = await countRows()
    for (const table of ['entries', 'entry_items', 'events', 'unrouted_events', 'staff_notifications']) {
      expect(after[table]! - before[table]!).toBe(1)
    }
  })

  test('in crossing pairs at once, no two accepted share one, and none is refused without a reason', async () => {
    const contacts = Array.from({ length: 4 }, newContact)
    const emails = contacts.map((contact) => `${contact}@example.in`)
    const pairs = Array.from({ length: 64 }, (_, n) => ({ contact: contacts[n % 4]!, email: emails[(n >> 2) % 4]! }))
    const answers = await createAll(pairs.map((pair) => leadBody(lab, pair)))
    requireNoSharing(
      pairs,
      answers.map(({ status }) => status),
    )
  })

  test('of three that cross (c1,e1) (c1,e2) (c2,e1), either the first wins alone or the other two do, 20 times', async () => {
    for (let round = 0; round < 20; round++) {
      const [c1, c2] = [newContact(), newContact()]
      const [e1, e2] = [`${c1}@example.in`, `${c2}@example.in`]
      const pairs = [
        { contact: c1, email: e1 },
        { contact: c1, email: e2 },
        { contact: c2, email: e1 },
      ]
      // Bookings take no telecaller's turn, and so meet at the guards themselves.
      const bodyOf = round % 2 === 0 ? leadBody : bookingBody
      const answers = await createAll(pairs.map((pair) => bodyOf(lab, pair)))
      requireNoSharing(
        pairs,
        answers.map(({ status }) => status),
      )
    }
  })
})

test('no attempt of this file was answered with a fault of ours', () => {
  expect([...app.logs(), ...otherApp.logs()].filter(({ status }) => Number(status) >= 500)).toEqual([])
})
