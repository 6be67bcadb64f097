/**
 * What can be called, three times over: by the code, by the contracts, by the tables of the tests. Whoever adds a way in names it
 * in each, or finds out here.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { HandlerDeps } from '../../src/handlers.ts'
import { clientOperations, operatorOperations } from '../../src/operations.ts'
import { CLIENT_HINTS } from '../fuzz/operation-hints.ts'
import { client, operator, startTestApp, type TestApp } from '../support/app.ts'
import { buildAccount } from '../support/builders.ts'
import type { ContractChecker } from '../support/contract-checker.ts'
import { DELIVERY_CALLS, KEEPING_CALLS } from '../support/operator-calls.ts'
import { STAFF_CALLS } from '../support/staff-calls.ts'

/** In their order, and what each answers besides the contracts. */
const ROUTES = [
  'use(traceRequest(deps))',
  'use(requireHost)',
  "all('/livez'",
  "all('/readyz'",
  'use(serveReference(deps))',
  'use(serveReportFiles(',
  'use(serveDocuments(',
  'use(spanRequests(',
  "use(dispatch('/client/'",
  "use(dispatch('/operator/'",
  'use(() =>',
  'use(answerError)',
]
const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND', 'SEARCH', 'LOCK']
/** What scanners ask for, and what other services of this kind have. */
const NOWHERE = [
  '/metrics', '/debug', '/debug/pprof', '/admin', '/status', '/health', '/healthz', '/server-status', '/actuator/env', '/graphql',
  '/.env', '/.git/config', '/package.json', '/openapi.json', '/openapi/client.yaml', '/client.yaml', '/swagger', '/api-docs',
  '/docs/', '/docs/client.yaml', '/docs/..%2fpackage.json', '/docs/../package.json', '/livez/', '/LIVEZ', '/client', '/operator',
  '/client/', '/operator/', '/client/../operator/accounts', '/client/..%2foperator/accounts', '/operator;/accounts', '/__proto__',
  '/constructor', '/client/__proto__', '/%2e%2e/', '/reports/', '/reports/files/..%2f..%2fsecrets.key', '/*', '/client/labs%00',
  '/client/labs;x=1', '/client/labs.json',
] // prettier-ignore

let app: TestApp
let token: string
beforeAll(async () => {
  app = await startTestApp()
  token = (await buildAccount(app)).token
})
afterAll(() => app.close())

const idsOf = (contract: ContractChecker) => contract.operations.map(({ operationId }) => operationId).sort()
/** They are made, and not called. */
const deps = () => ({ ...app }) as unknown as HandlerDeps

test.each([
  ['client', client, clientOperations],
  ['operator', operator, operatorOperations],
] as const)('the handlers of the code are the operations of the %s contract, each once', (_, contract, handlersOf) => {
  expect(Object.keys(handlersOf(deps())).sort()).toEqual(idsOf(contract))
  expect(new Set(idsOf(contract)).size).toBe(contract.operations.length)
})

test('the tables of the tests have every operation of an integrator, and every one that changes something for the lab', () => {
  expect(Object.keys(CLIENT_HINTS).sort()).toEqual(idsOf(client))
  const changing = operator.operations.filter(({ method }) => method !== 'GET').map(({ operationId }) => operationId)
  const called = Object.keys({ ...KEEPING_CALLS, ...STAFF_CALLS, ...DELIVERY_CALLS })
  expect(called.sort()).toEqual(changing.sort())
})

test('the application has these routes and no others', () => {
  const code = readFileSync(join(import.meta.dirname, '../../src/app.ts'), 'utf8').replace(/\(\s+/g, '(')
  const routes = code.match(/\bapp\.(use|all|get|head|post|put|patch|delete|options|route|param)\(.*/g) ?? []
  expect(routes).toHaveLength(ROUTES.length)
  for (const [n, route] of ROUTES.entries()) expect(routes[n]).toContain(`app.${route}`)
})

describe('there is nothing', () => {
  test.each(NOWHERE)('at %s, by any method, and it is said in the one shape', async (path) => {
    for (const method of METHODS) {
      const { status, body } = await app.call(method, path, { token })
      expect([method, status]).toEqual([method, 404])
      expect(body).toEqual({
        success: false,
        status: 404,
        message: 'Not Found',
        error: { details: expect.any(String), code: 'not_found' },
        requestId: expect.any(String),
      })
    }
  })
})

test.each(['/livez', '/readyz', '/docs', '/docs/client'])('%s is only there to be read', async (path) => {
  for (const method of METHODS.slice(1)) {
    const { status, body, headers } = await app.call(method, path, { token })
    expect([method, status, body.success, body.error.code]).toEqual([method, 405, false, 'method_not_allowed'])
    expect(headers.allow).toMatch(/^GET/)
  }
})

test.each([
  ['client', client],
  ['operator', operator],
] as const)('every error of the %s contract has the one shape', (_, contract) => {
  const responses = (contract.document.components as { responses: Record<string, object> }).responses
  const shapes = contract.operations.flatMap((operation) =>
    Object.entries(operation.responses)
      .filter(([status]) => Number(status) >= 400)
      .map(([, response]) => {
        const { content } = (response.$ref ? responses[response.$ref.split('/').at(-1)!] : response) as typeof response
        return JSON.stringify((content?.['application/json'] as { schema?: object } | undefined)?.schema)
      }),
  )
  expect(shapes.length).toBeGreaterThan(100)
  expect([...new Set(shapes)]).toEqual(['{"$ref":"#/components/schemas/Error"}'])
})
