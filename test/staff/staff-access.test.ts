/**
 * Who may do what staff do, and with what: every operation with a key of each kind, and with ids that are none.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { newId } from '../../src/ids.ts'
import { operator, startTestApp, type TestApp } from '../support/app.ts'
import { buildAccount, buildOperatorKey } from '../support/builders.ts'
import { buildOperatorWorld, type OperatorWorld } from '../support/operator-calls.ts'
import { STAFF_CALLS } from '../support/staff-calls.ts'

const FOR_ADMINS = ['createPhlebotomist', 'deactivatePhlebotomist']
const PATHS = ['/entries/', '/bookings/', '/bills/', '/reports/', '/pre-bookings/', '/phlebotomists/']

let app: TestApp
let world: OperatorWorld
let staffKey: string
let foreignKey: string

beforeAll(async () => {
  app = await startTestApp()
  world = await buildOperatorWorld(app, await buildOperatorKey(app))
  staffKey = await buildOperatorKey(app, { role: 'staff', accountId: world.account.id })
  foreignKey = await buildOperatorKey(app, { role: 'admin', accountId: (await buildAccount(app)).id })
})
afterAll(() => app.close())

const eventCount = async () =>
  Number((await app.database.knex('events').where({ account_id: world.account.id }).count({ n: '*' }))[0]!.n)

describe.each(Object.keys(STAFF_CALLS))('%s', (operationId) => {
  test('is for staff of the account alone, and changes nothing for anybody else', async () => {
    const call = await STAFF_CALLS[operationId]!(world)
    const before = await eventCount()
    const tries = [undefined, 'x', world.account.token, foreignKey]
    for (const [index, token] of tries.entries()) {
      const { status } = await app.call('POST', call.path, { token, ...call })
      expect(status).toBe(index < 3 ? 401 : 404)
    }
    expect(await eventCount()).toBe(before)
    const { status } = await app.call('POST', call.path, { token: staffKey, ...call })
    expect(status >= 300 ? status : 200).toBe(FOR_ADMINS.includes(operationId) ? 403 : 200)
  })

  test('knows no record by an id that is none', async () => {
    const call = await STAFF_CALLS[operationId]!(world)
    const known = PATHS.find((path) => call.path.includes(path))
    if (known === undefined) return
    const [start, rest] = call.path.split(known) as [string, string]
    const [id, ...action] = rest.split('/') as [string, ...string[]]
    for (const wrong of [newId(0), 'x', '%C3%A9', `${id}%20`, id.toUpperCase(), '%00', "'%20OR%201=1"]) {
      const path = `${start}${known}${[wrong, ...action].join('/')}`
      expect((await app.call('POST', path, { token: world.token, ...call })).status).toBe(404)
    }
  })
})

test('every reading operation of staff is 404 for the key of another account', async () => {
  const staffTags = ['Bookings', 'Bills', 'Reports']
  const reading = operator.operations.filter(
    (operation) => operation.method === 'GET' && staffTags.some((tag) => tagsOf(operation).includes(tag)),
  )
  expect(reading.length).toBeGreaterThan(9)
  for (const { path } of reading) {
    const filled = path.replace('{accountId}', world.account.id).replace(/\{[^}]+\}/g, newId(0))
    expect((await app.call('GET', filled, { token: foreignKey })).status).toBe(404)
    expect((await app.call('GET', filled, { token: staffKey })).status).toBe(path.endsWith('}') ? 404 : 200)
  }
})

function tagsOf(operation: object): string[] {
  return (operation as { tags: string[] }).tags
}
