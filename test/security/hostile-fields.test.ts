/**
 * Fields that nobody asked for, in every operation of both contracts: names that reach a prototype, names of what only the
 * service sets, and fifty others. The answer is the same as without them, nothing of them is stored, no prototype changes, and
 * no answer has a field that the contract does not know.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { FuzzWorld } from '../fuzz/fuzz-world.ts'
import { OperationRunner } from '../fuzz/operation-runs.ts'
import { client, operator, startTestApp, type CallOptions, type TestApp } from '../support/app.ts'
import { buildOperatorKey } from '../support/builders.ts'
import { definitionsOf, variantsOf, type Schema } from '../support/contract-arbitraries.ts'
import type { ContractChecker, ContractOperation } from '../support/contract-checker.ts'
import { buildOperatorWorld, DELIVERY_CALLS, KEEPING_CALLS, type MakeCall, type OperatorWorld } from '../support/operator-calls.ts' // prettier-ignore
import { STAFF_CALLS } from '../support/staff-calls.ts'

const CANARY = 'Canary5207'
/** An even one: on a catch-all account, where an answer has the same fields each time. */
const SEED = 20_261_120
const STAFF: Record<string, MakeCall> = { ...KEEPING_CALLS, ...STAFF_CALLS, ...DELIVERY_CALLS }

/** What the service alone sets, by the names that its answers and its tables have for it. */
const SERVER_FIELDS = [
  '_id', 'id', 'leadId', 'billId', 'accountId', 'account_id', 'tenant', 'labId', 'clientId', 'mode', 'role', 'isAdmin', 'state',
  'status', 'bookingStatus', 'paymentStatus', 'convertedAt', 'createdAt', 'created_at', 'updatedAt', 'deletedAt', 'deactivatedAt',
  'isActive', 'active', 'version', 'telecaller', 'secret', 'failedAttempts', 'firstFailureAt', 'lastError', 'epoch', 'sandbox',
  'is_test', 'totalAmountPaid', 'revokedAt', 'key',
] // prettier-ignore
const PROTOTYPE_FIELDS = {
  constructor: { prototype: { polluted: CANARY } },
  prototype: { polluted: CANARY },
  toString: CANARY,
  hasOwnProperty: null,
  valueOf: 1,
  then: CANARY,
  toJSON: CANARY,
  length: 5,
}
const POLLUTED_QUERY =
  '__proto__[polluted]=1&__proto__.polluted=1&constructor[prototype][polluted]=1&a[__proto__][polluted]=1&__proto__=1&toString=1'
/** Stands for `__proto__`, which no object literal can have for a name of its own. */
const PROTO = '@@proto'
/** In these the caller chooses the names: an unknown one is refused, or is data. */
const NAMED_BY_CALLER = new Set(['customFields', 'cells', 'variables'])

let app: TestApp
let runner: Record<'client' | 'operator', OperationRunner>
let world: OperatorWorld

beforeAll(async () => {
  app = await startTestApp()
  const fuzzWorld = await FuzzWorld.create(app)
  runner = { client: new OperationRunner(fuzzWorld, client), operator: new OperationRunner(fuzzWorld, operator) }
  world = await buildOperatorWorld(app, await buildOperatorKey(app))
})
afterAll(() => app.close())

interface Sendable {
  path: string
  options: CallOptions
}

async function sendable(name: 'client' | 'operator', operation: ContractOperation): Promise<Sendable> {
  const make = name === 'operator' ? STAFF[operation.operationId] : undefined
  if (!make) return runner[name].valid(operation, SEED)
  const { path, ...options } = await make(world)
  return { path, options: { token: world.token, ...options } }
}

/** The names that the operation's body may have. */
function namesOf(contract: ContractChecker, operation: ContractOperation): Set<string> {
  const { requestBody } = operation as { requestBody?: { content: Record<string, { schema: Schema }> } }
  const schema = requestBody?.content['application/json']?.schema
  const definitions = definitionsOf(contract.document)
  const variants = schema ? variantsOf(definitions.resolve(schema), definitions) : []
  return new Set(variants.flatMap(({ properties }) => Object.keys(properties ?? {})))
}

function overposted(body: unknown, known: Set<string>): string {
  const more = Object.fromEntries(Array.from({ length: 50 }, (_, n) => [`unknown${n}`, [`${CANARY}${n}`, n, { a: CANARY }, null][n % 4]])) // prettier-ignore
  const ofServer = Object.fromEntries(SERVER_FIELDS.filter((name) => !known.has(name)).map((name) => [name, CANARY]))
  const hostile = { [PROTO]: { polluted: CANARY, isAdmin: true, phase: 'booking' }, ...PROTOTYPE_FIELDS }
  const inside = (value: unknown, name = ''): unknown => {
    if (Array.isArray(value)) return value.map((item) => inside(item, name))
    if (typeof value !== 'object' || value === null || NAMED_BY_CALLER.has(name)) return value
    const own = Object.entries(value).map(([key, item]) => [key, inside(item, key)])
    return { ...hostile, unknown: CANARY, ...Object.fromEntries(own) }
  }
  const whole = { ...more, ...ofServer, ...(inside(body) as object) }
  return JSON.stringify(whole).replaceAll(`"${PROTO}"`, '"__proto__"')
}

function withPollutedQuery({ query = {} }: CallOptions): string {
  const sent = Object.entries(query).filter((entry): entry is [string, string] => entry[1] !== undefined)
  return `?${[new URLSearchParams(sent).toString(), POLLUTED_QUERY].filter(Boolean).join('&')}`
}

/** What an answer looks like without its values, but for those that say how things stand. */
const TELLING = /^(success|status|phase|bookingStatus|paymentStatus|state|active|isActive|mode|role|sandbox)$/
function lookOf(value: unknown, name = ''): unknown {
  if (Array.isArray(value)) return 'list'
  if (name === 'error') return (value as { code: unknown }).code
  if (typeof value === 'object' && value !== null) {
    return Object.fromEntries(
      Object.entries(value)
        // The second of two webhooks that are alike is told of the first.
        .filter(([key]) => key !== 'warnings')
        .sort()
        .map(([key, item]) => [key, lookOf(item, key)]),
    )
  }
  return TELLING.test(name) ? value : value === null ? null : typeof value
}

/** Every row of every table that holds the canary. */
async function stored(): Promise<string[]> {
  const { knex } = app.database
  const [tables] = await knex.raw('SHOW TABLES')
  const found: string[] = []
  for (const table of tables.map((row: object) => String(Object.values(row)[0]))) {
    for (const row of await knex(table)) {
      const text = Object.entries(row as object).map(([column, value]) => `${column}=${Buffer.isBuffer(value) ? value.toString('latin1') : JSON.stringify(value)}`) // prettier-ignore
      found.push(...text.filter((cell) => cell.includes(CANARY)).map((cell) => `${table}.${cell.slice(0, 200)}`))
    }
  }
  return found
}

describe.each([
  ['client', client],
  ['operator', operator],
] as const)('of the %s contract', (name, contract) => {
  test.each(contract.operations)('$operationId takes no notice of them', async (operation) => {
    const plain = await sendable(name, operation)
    const expected = await app.call(operation.method, plain.path, plain.options)
    if (STAFF[operation.operationId]) expect(expected.status).toBeLessThan(300)
    const { path, options } = await sendable(name, operation)
    const { body, query: _, ...rest } = options
    const hostile: CallOptions = { ...rest, search: withPollutedQuery(options) }
    if (operation.takesBody && options.rawBody === undefined && body !== undefined)
      hostile.rawBody = overposted(body, namesOf(contract, operation))
    const answer = await app.call(operation.method, path, hostile)
    expect([answer.status, lookOf(answer.body)]).toEqual([expected.status, lookOf(expected.body)])
    expect(answer.status).toBeLessThan(500)
    expect(JSON.stringify(answer.body)).not.toContain(CANARY)
    expect(({} as Record<string, unknown>).polluted).toBeUndefined()
    expect(Object.getOwnPropertyNames(Object.prototype)).not.toContain('phase')
  })

  const withPath = contract.operations.filter(({ path }) => path.includes('{'))
  test.each(withPath)('$operationId finds nothing under them in its path', async (operation) => {
    const { options } = await runner[name].valid(operation, SEED)
    for (const value of ['__proto__', 'constructor', 'prototype', 'toString', 'hasOwnProperty']) {
      const path = operation.path.replace(/\{[^}]+\}/g, value)
      const { status, body } = await app.call(operation.method, path, options)
      expect([400, 403, 404]).toContain(status)
      expect(body).toMatchObject({ success: false, status, error: { details: expect.any(String) } })
    }
  })
})

test('nothing of them is stored', async () => {
  expect(await stored()).toEqual([])
})

describe('an answer', () => {
  test.each([
    ['client', client],
    ['operator', operator],
  ] as const)('of the %s contract can have no field that the contract does not name', (_, contract) => {
    const definitions = definitionsOf(contract.document)
    const open = new Set<string>()
    const visit = (schema: Schema, where: string, seen: Schema[]): void => {
      const resolved = definitions.resolve(schema)
      if (seen.includes(resolved)) return
      const within = [...seen, resolved]
      const { properties, additionalProperties, unevaluatedProperties } = resolved as Schema & { unevaluatedProperties?: boolean } // prettier-ignore
      const isClosed = additionalProperties !== undefined || unevaluatedProperties !== undefined
      if (properties && !isClosed) open.add(schema.$ref ?? where)
      for (const [key, value] of Object.entries(properties ?? {})) visit(value, `${where}.${key}`, within)
      for (const part of [
        ...(resolved.anyOf ?? []),
        ...(resolved.oneOf ?? []),
        ...(resolved.then ? [resolved.then] : []),
      ])
        visit(part, where, within)
      if (resolved.items) visit(resolved.items, `${where}[]`, within)
    }
    for (const operation of contract.operations) {
      for (const [status, response] of Object.entries(operation.responses)) {
        const { content } = definitions.resolve(response as Schema) as { content?: Record<string, { schema?: Schema }> }
        const schema = content?.['application/json']?.schema
        if (schema) visit(schema, `${operation.operationId} ${status}`, [])
      }
    }
    expect([...open]).toEqual([])
  })
})
