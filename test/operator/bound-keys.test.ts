import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { newId } from '../../src/ids.ts'
import { operator, startTestApp, type TestApp } from '../support/app.ts'
import { buildAccount, buildOperatorKey } from '../support/builders.ts'
import {
  buildOperatorWorld,
  DELIVERY_CALLS,
  KEEPING_CALLS,
  type MakeCall,
  type OperatorWorld,
} from '../support/operator-calls.ts'
import { STAFF_CALLS } from '../support/staff-calls.ts'

const CALLS: Record<string, MakeCall> = { ...KEEPING_CALLS, ...STAFF_CALLS, ...DELIVERY_CALLS }
const ofSomeAccount = operator.operations.filter(({ path }) => /\{(accountId|labID)\}/.test(path))
const byMethod = (isRead: boolean) => ofSomeAccount.filter(({ method }) => (method === 'GET') === isRead)

let app: TestApp
let world: OperatorWorld
/** Of another account. */
let bound: string

beforeAll(async () => {
  app = await startTestApp()
  app.clock.set(new Date(await app.database.readTimeMs()).toISOString())
  world = await buildOperatorWorld(app, await buildOperatorKey(app))
  bound = await buildOperatorKey(app, { accountId: (await buildAccount(app)).id })
})
afterAll(() => app.close())

describe('a key that is bound to another account', () => {
  test.each(byMethod(false).map(({ operationId, method }) => [operationId, method] as const))(
    'finds nothing that it could change by %s',
    async (operationId, method) => {
      const { path, ...call } = await CALLS[operationId]!(world)
      const { status, body } = await app.call(method, path, { ...call, token: bound })
      expect([status, body.error?.details]).toEqual([404, expect.stringMatching(/^(account|lab) not found$/)])
    },
  )

  test.each(byMethod(true).map(({ operationId, path }) => [operationId, path] as const))(
    'finds nothing to read by %s',
    async (_, template) => {
      const ids: Record<string, string> = {
        accountId: world.account.id,
        labID: world.lab.id,
        eventId: `evt_${newId(0)}`,
      }
      const path = template.replace(/\{(\w+)\}/g, (_match, name: string) => ids[name] ?? newId(0))
      const { status, body } = await app.call('GET', path, { token: bound, query: queryOf(template) })
      expect([status, body.error?.details]).toEqual([404, expect.stringMatching(/^(account|lab) not found$/)])
    },
  )
})

/** What an operation can't be called without. */
function queryOf(template: string): Record<string, string> {
  const { parameters } = operator.operations.find(
    ({ path, method }) => path === template && method === 'GET',
  ) as unknown as {
    parameters: { name?: string; in?: string; required?: boolean; $ref?: string }[]
  }
  const components = operator.document.components as { parameters: Record<string, (typeof parameters)[number]> }
  const resolved = parameters.map((one) => (one.$ref ? components.parameters[one.$ref.split('/').at(-1)!]! : one))
  const required = resolved.filter((one) => one.in === 'query' && one.required)
  return Object.fromEntries(required.map(({ name }) => [name!, name === 'contact' ? '9812345670' : newId(0)]))
}
