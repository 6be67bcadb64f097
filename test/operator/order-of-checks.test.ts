/** Decisions 9: what the request alone shows is 400, also where there is nothing at its path; unknown ids come before a conflict. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { newId } from '../../src/ids.ts'
import { encodeCursor } from '../../src/paging.ts'
import { done, openStaffWorld, type StaffWorld } from '../staff/staff-world.ts'
import { operator, startTestApp, type TestApp } from '../support/app.ts'
import { buildOperatorKey } from '../support/builders.ts'

let app: TestApp
let token: string
let world: StaffWorld

beforeAll(async () => {
  app = await startTestApp()
  token = await buildOperatorKey(app)
  world = await openStaffWorld(app)
})
afterAll(() => app.close())

const parametersOf = ({ path }: { path: string }) =>
  JSON.stringify((operator.document.paths[path] as any).get.parameters)
const lists = operator.operations.filter(
  (operation) => operation.method === 'GET' && /cursor/i.test(parametersOf(operation)),
)

test('there are lists to be asked', () => {
  expect(lists.length).toBeGreaterThan(15)
})

test.each(lists.map(({ operationId, path }) => [operationId, path]))(
  '%s refuses a cursor that is none before it looks for anything',
  async (_operationId, path) => {
    const nowhere = path.replaceAll(/\{\w+\}/g, () => newId(0))
    // None that can be read, and two that can and hold nothing of the list.
    for (const cursor of ['!', encodeCursor(['x']), encodeCursor(['x', 'x'])]) {
      const { status, body } = await app.call('GET', nowhere, { token, query: { cursor, webhookId: newId(0) } })
      expect([cursor, status, body.error.details]).toEqual([cursor, 400, expect.stringContaining('cursor')])
    }
  },
)

test('a bill without items, an endpoint that can be none and a day that there is not are refused before the account is looked for', async () => {
  const path = `/operator/accounts/${newId(0)}`
  const bill = { labID: newId(0), firstName: 'Asha' }
  const webhook = { labID: newId(0), endpoint: 'https://127.0.0.1/hooks', events: ['lead.created'] }
  const statuses = [
    await app.call('POST', `${path}/bills`, { token, body: bill }),
    await app.call('POST', `${path}/webhooks`, { token, body: webhook }),
    await app.call('GET', `${path}/bookings`, { token, query: { day: '2026-02-30' } }),
  ]
  expect(statuses.map(({ status }) => status)).toEqual([400, 400, 400])
})

test('a test that there is none of is told of before the state that the entry is in', async () => {
  const leadId = await world.createBooking()
  done(await world.post(`/bookings/${leadId}/cancel`))
  const mapTo = async (id: string) => {
    const { status, body } = await world.post(`/entries/${leadId}/map-items`, { items: [{ item: 1, test: id }] })
    return [status, body.error.code]
  }
  expect(await mapTo(newId(0))).toEqual([400, 'unknown_test'])
  expect(await mapTo(world.test.id)).toEqual([409, 'invalid_state'])
})
