/** Messages to patients under an `Idempotency-Key`: a repeat sends none a second time. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startTestApp, type TestApp } from '../support/app.ts'
import { buildOperatorKey } from '../support/builders.ts'
import { done, openStaffWorld, uploadedReport, type StaffWorld } from '../staff/staff-world.ts'

let app: TestApp
let world: StaffWorld

beforeAll(async () => {
  app = await startTestApp()
  world = await openStaffWorld(app)
})
afterAll(() => app.close())

let keys = 0
const newKey = () => `message-${++keys}`

function post(path: string, key: string, body?: unknown, token = world.staffKey) {
  const url = `/operator/accounts/${world.account.id}${path}`
  return app.call('POST', url, { token, body, headers: { 'idempotency-key': key } })
}

const messages = async () => (await app.database.knex('messages').pluck('event_id')).length
const audited = async (operation: string) =>
  (await app.database.knex('audit_entries').where({ account_id: world.account.id, operation })).length

const message = (text = 'Dear Asha, …') => ({
  labID: world.lab.id,
  type: 'quotation.send',
  recipient: { contact: '9876543210', name: 'Asha Kulkarni' },
  template: 'quotation',
  text,
})

test('a repeat gets the first answer and sends nothing; another body is refused', async () => {
  const [key, before, told] = [newKey(), await messages(), await audited('recordMessage')]
  const first = await post('/messages', key, message())
  expect([first.status, first.headers['idempotent-replayed']]).toEqual([201, undefined])
  const again = await post('/messages', key, message())
  expect([again.status, again.body]).toEqual([201, first.body])
  expect(again.headers['idempotent-replayed']).toBe('true')
  const other = await post('/messages', key, message('Dear Rohan, …'))
  expect([other.status, other.body.error.code]).toEqual([422, 'idempotency_mismatch'])
  expect([await messages(), await audited('recordMessage')]).toEqual([before + 1, told + 1])
})

test('of ten requests with one key at once one sends', async () => {
  const [key, before] = [newKey(), await messages()]
  const answers = await Promise.all(Array.from({ length: 10 }, () => post('/messages', key, message())))
  const ids = answers.flatMap(({ status, body }) => (status === 201 ? [body.messageId] : []))
  expect(new Set(ids).size).toBe(1)
  for (const { status } of answers) expect([201, 409]).toContain(status)
  expect(await messages()).toBe(before + 1)
})

test('what is sent of a record is sent once, and a key of one record is none of another', async () => {
  const { billId, reportId, leadId } = await uploadedReport(world)
  done(await world.post(`/reports/${reportId}/sign-off`))
  const visit = await world.createBooking({ contact: '9890123457' })
  done(await world.post(`/bookings/${visit}/assign-phlebotomist`, { phlebotomistId: world.phlebotomistId }))
  const lead = await world.createEntry({ contact: '9890123458', totalAmount: 99 })
  const paths = [
    ...[`/reports/${reportId}/send`, `/bills/${billId}/send`, `/bookings/${visit}/send`],
    ...[`/bookings/${visit}/send-phlebotomist`, `/entries/${lead}/send-quotation`],
  ]
  const before = await messages()
  for (const path of paths) {
    const key = newKey()
    const first = await post(path, key)
    expect([path, first.status]).toEqual([path, 201])
    const again = await post(path, key)
    expect([again.body, again.headers['idempotent-replayed']]).toEqual([first.body, 'true'])
  }
  expect(await messages()).toBe(before + paths.length)
  const key = newKey()
  done(await post(`/bookings/${visit}/send`, key))
  expect((await post(`/bookings/${leadId}/send`, key)).body.error.code).toBe('idempotency_mismatch')
})

test('a refusal is answered again', async () => {
  const lead = await world.createEntry({ contact: '9890123459', tests: [] })
  const key = newKey()
  const refused = await post(`/entries/${lead}/send-quotation`, key)
  expect([refused.status, refused.body.error.code]).toEqual([409, 'invalid_state'])
  const again = await post(`/entries/${lead}/send-quotation`, key)
  expect([again.status, again.headers['idempotent-replayed']]).toEqual([409, 'true'])
  expect(again.body.error).toEqual(refused.body.error)
})

test('the same key of two operator keys are two, and a key that is none is refused', async () => {
  const [key, before] = [newKey(), await messages()]
  const other = await buildOperatorKey(app, { role: 'staff', accountId: world.account.id })
  const [own, others] = [await post('/messages', key, message()), await post('/messages', key, message(), other)]
  expect([own.status, others.status, others.headers['idempotent-replayed']]).toEqual([201, 201, undefined])
  expect(others.body.messageId).not.toBe(own.body.messageId)
  const malformed = await post('/messages', 'a b', message())
  expect([malformed.status, malformed.body.error.fields[0].field]).toEqual([400, 'Idempotency-Key'])
  expect(await messages()).toBe(before + 2)
})
