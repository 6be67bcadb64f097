/**
 * Proves of the specification:
 * - "Notification kinds on CRM creation: `NEW_LEAD` (lead), `BOOKING_CONFIRMED` (booking)."
 * And of the decisions: they are staff notifications, stored and listed for staff; not webhook events.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { newId } from '../../src/ids.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { bookingBody, buildAccount, buildLab, buildOperatorKey, leadBody } from '../support/builders.ts'

let app: TestApp
let key: string

beforeAll(async () => {
  app = await startTestApp()
  key = await buildOperatorKey(app)
})
afterAll(() => app.close())

async function buildWorld() {
  const account = await buildAccount(app)
  const lab = await buildLab(app, account)
  const create = (body: Record<string, unknown>) =>
    app.call('POST', '/client/crm/lead/create', { token: account.token, body })
  const list = (query: Record<string, string> = {}, token = key) =>
    app.call('GET', `/operator/accounts/${account.id}/notifications`, { token, query })
  return { account, lab, create, list }
}

test('a lead is told of as NEW_LEAD and a booking as BOOKING_CONFIRMED, by ids alone, the newest first', async () => {
  const { lab, create, list } = await buildWorld()
  const createdAt = app.clock.now().toISOString()
  const lead = (await create(leadBody(lab, { first_name: 'Canary4711', last_name: 'Canary4711' }))).body
  app.clock.advance(1)
  const booking = (await create(bookingBody(lab))).body
  const { status, body } = await list()
  expect([status, body]).toEqual([
    200,
    {
      notifications: [
        {
          notificationId: expect.any(String),
          kind: 'BOOKING_CONFIRMED',
          labID: lab.id,
          leadId: booking.leadId,
          createdAt: booking.convertedAt,
        },
        { notificationId: expect.any(String), kind: 'NEW_LEAD', labID: lab.id, leadId: lead.leadId, createdAt },
      ],
      nextCursor: null,
    },
  ])
  const types = await app.database.knex('events').whereIn('subject_id', [lead.leadId, booking.leadId]).orderBy('id')
  expect(types.map(({ type }) => type)).toEqual(['lead.created', 'booking.created'])
  expect(JSON.stringify(await app.database.knex('staff_notifications'))).not.toContain('Canary4711')
})

test('a refused call is told to nobody', async () => {
  const { lab, create, list } = await buildWorld()
  const body = leadBody(lab)
  await create(body)
  const refused = [await create(body), await create({ ...body, branchID: 'x' }), await create({ ...body, phase: 'x' })]
  expect(refused.map(({ status }) => status)).toEqual([409, 403, 400])
  expect((await list()).body.notifications).toHaveLength(1)
})

test('pages follow each other without a gap and without a repeat, also while new ones come', async () => {
  const { lab, create, list } = await buildWorld()
  const ids: string[] = []
  for (let n = 0; n < 5; n++) {
    app.clock.advance(1)
    ids.unshift((await create(leadBody(lab))).body.leadId)
  }
  const first = (await list({ limit: '2' })).body
  app.clock.advance(1)
  await create(leadBody(lab))
  const second = (await list({ limit: '2', cursor: first.nextCursor })).body
  const third = (await list({ limit: '2', cursor: second.nextCursor })).body
  const seen = [first, second, third].flatMap(({ notifications }) => notifications)
  expect(seen.map(({ leadId }) => leadId)).toEqual(ids)
  expect(third.nextCursor).toBe(null)
})

test('an account has its own, every role may read them, and the limits of a page hold', async () => {
  const { account, lab, create, list } = await buildWorld()
  await create(leadBody(lab))
  const other = await buildWorld()
  expect((await other.list()).body).toEqual({ notifications: [], nextCursor: null })
  const staff = await buildOperatorKey(app, { role: 'staff', accountId: account.id })
  expect((await list({}, staff)).status).toBe(200)
  expect((await other.list({}, staff)).status).toBe(404)
  for (const cursor of ['x', newId(0), Buffer.from('["é"]').toString('base64url')]) {
    const answer = await list({ cursor })
    expect([answer.status, answer.body.error.fields[0].field]).toEqual([400, 'cursor'])
  }
  for (const limit of ['0', '101', 'x', '1.5', '']) {
    const answer = await list({ limit })
    expect([answer.status, answer.body.error.fields[0].field]).toEqual([400, 'limit'])
  }
})
