/**
 * Runs generated requests of one operation against an app: valid ones, which must be taken, and ones with a fault, which must
 * be refused in the contract's shape and store nothing.
 */
import fc from 'fast-check'
import type { Answer, ContractChecker, ContractOperation } from '../support/contract-checker.ts'
import { createAjv } from '../../src/api.ts'
import type { CallOptions, TestApp } from '../support/app.ts'
import { nextNumber } from '../support/builders.ts'
import { withIgnoredField } from '../support/contract-mutations.ts'
import { arbitraryOf, definitionsOf, type Given, type Schema } from '../support/contract-arbitraries.ts'
import { faultyCalls, type BaseRequest, type FaultyCall } from './faulty-calls.ts'
import { unknownId, type FuzzWorld, type Tenant } from './fuzz-world.ts'
import { injected, placesOf } from './injected-requests.ts'
import { prepare, type Prepared } from './operation-hints.ts'

export interface Parameter {
  name: string
  in: 'query' | 'path' | 'header'
  required?: boolean
  schema: Schema
}

interface FullOperation extends ContractOperation {
  parameters?: (Parameter | { $ref: string })[]
  requestBody?: { required?: boolean; content: Record<string, { schema: Schema } | undefined> }
}

export interface Outcome {
  operation: string
  sent: number
  /** How many of each answer. */
  statuses: Record<number, number>
  failures: string[]
}

const AT_ONCE = 8
const MAX_TRIES = 5
/** Rows of these come and go beside what a request asks for. */
const UNCOUNTED = new Set(['crm_budgets', 'idempotency_keys'])

const isObject = (body: unknown): body is object => typeof body === 'object' && body !== null && !Buffer.isBuffer(body)

export class OperationRunner {
  readonly #world: FuzzWorld
  readonly #contract: ContractChecker
  readonly #alsoGiven: Given
  readonly #ajv = createAjv({ allErrors: false, strict: false })

  /** @param alsoGiven in the place of what the hints of the operations say */
  constructor(world: FuzzWorld, contract: ContractChecker, alsoGiven: Given = {}) {
    this.#world = world
    this.#alsoGiven = alsoGiven
    this.#contract = contract
    this.#ajv.addSchema(contract.document, 'contract')
  }

  get #app(): TestApp {
    return this.#world.app
  }

  /** @param hasIgnored some have fields that no operation knows, which another reader of the contract may stumble over */
  async runValid(operation: ContractOperation, count: number, seed: number, hasIgnored = true): Promise<Outcome> {
    const outcome: Outcome = { operation: operation.operationId, sent: 0, statuses: {}, failures: [] }
    const success = Number(Object.keys(operation.responses).find((status) => status.startsWith('2')))
    await inTurns(count, async (n) => {
      const tenant = await this.#tenantOf(operation, n)
      const prepared = await this.#prepare(operation, tenant, seed)
      const body = this.#validBody(operation, prepared, seed + n)
      const options = this.#options(operation, tenant, prepared, body)
      if (hasIgnored && n % 4 === 3 && isObject(body))
        Object.assign(options, { body: undefined, rawBody: withIgnoredField(body, n >> 2) })
      if (n % 3 === 1 && takesKey(operation)) options.headers!['idempotency-key'] = `fuzz-${seed}-${nextNumber()}`
      if (n % 5 === 2) options.headers!['x-request-id'] = 'r'.repeat(1 + (n % 200))
      const allowed = prepared.isGuess ? [success, 400, 403, 404, 409, 422] : [success]
      await this.#call(outcome, operation, { what: `${tenant.mode}, valid`, options, statuses: allowed }, prepared)
    })
    return outcome
  }

  /** A request that fits, not sent yet. The same seed makes the same body, but for what may be there only once. */
  async valid(operation: ContractOperation, seed: number): Promise<{ path: string; options: CallOptions }> {
    const tenant = await this.#tenantOf(operation, seed, 2)
    const prepared = await this.#prepare(operation, tenant, seed)
    const body = this.#validBody(operation, prepared, seed | 1)
    const path = operation.path.replace(/\{([^}]+)\}/g, (_, name: string) => prepared.path![name]!)
    return { path, options: this.#options(operation, tenant, prepared, body) }
  }

  async runFaulty(operation: ContractOperation, count: number, seed: number): Promise<Outcome> {
    const outcome: Outcome = { operation: operation.operationId, sent: 0, statuses: {}, failures: [] }
    let round = 0
    while (outcome.sent < count) {
      const tenant = await this.#tenantOf(operation, round, Math.min(count, 100))
      const prepared = await this.#prepare(operation, tenant, seed)
      const base = this.#baseRequest(operation, tenant, prepared, seed + round)
      const calls = shuffled(faultyCalls(base), seed + round)
      if (calls.length === 0) return outcome
      // A few from each body, so that many bodies are seen.
      const chosen = calls.slice(0, Math.min(100, count - outcome.sent))
      const before = await this.#rowCounts()
      await inTurns(chosen.length, (n) => this.#call(outcome, operation, chosen[n]!, prepared))
      const after = await this.#rowCounts()
      for (const [table, rows] of Object.entries(after)) {
        if (rows !== before[table]) {
          outcome.failures.push(
            `${operation.operationId}: refused calls changed the rows of ${table} from ${before[table]} to ${rows}`,
          )
        }
      }
      round++
    }
    return outcome
  }

  /**
   * Each text that the request can carry, one after the other, replaced by texts that are no ids and no names of anything.
   * @param texts for the next place
   */
  async runInjected(operation: ContractOperation, texts: () => string[], seed: number): Promise<Outcome> {
    const outcome: Outcome = { operation: operation.operationId, sent: 0, statuses: {}, failures: [] }
    const tenant = await this.#tenantOf(operation, seed, 100)
    const prepared = await this.#prepare(operation, tenant, seed)
    const body = this.#validBody(operation, prepared, seed | 1)
    const base = this.#options(operation, tenant, prepared, body)
    const places = placesOf(this.#parameters(operation), this.#bodySchema(operation), this.#contract.document)
    const calls = places.flatMap((place) =>
      texts().map((text) => ({
        what: `${place.where} ${place.name} is ${JSON.stringify(text)}`,
        ...injected(place, text, base, prepared.path),
        statuses: [...new Set([200, 201, 400, 401, 403, 404, 409, 422, 429])],
      })),
    )
    await inTurns(calls.length, (n) => this.#call(outcome, operation, calls[n]!, prepared))
    return outcome
  }

  async #tenantOf(operation: ContractOperation, n: number, calls = 1): Promise<Tenant> {
    const isClient = operation.path.startsWith('/client/')
    return this.#world.tenant(isClient && n % 2 === 1 ? 'party_scoped' : 'catch_all', calls)
  }

  /** With values for the parameters that nobody gave one. */
  async #prepare(operation: ContractOperation, tenant: Tenant, seed: number): Promise<Prepared> {
    const prepared = await prepare(operation, tenant, this.#world)
    const definitions = definitionsOf(this.#contract.document)
    const given = { ...prepared.given, ...this.#alsoGiven }
    const path: Record<string, string> = {}
    const query: Record<string, string> = {}
    for (const { name, in: place, required, schema } of this.#parameters(operation)) {
      if (!required) continue
      const value = () => String(fc.sample(arbitraryOf(given, definitions, schema, name), { seed, numRuns: 1 })[0])
      if (place === 'path') path[name] = unknownId(this.#app)
      if (place === 'query' && prepared.query?.[name] === undefined) query[name] = value()
    }
    return { ...prepared, given, path: { ...path, ...prepared.path }, query: { ...query, ...prepared.query } }
  }

  #validBody(operation: ContractOperation, prepared: Prepared, seed: number): Record<string, unknown> | undefined {
    const { requestBody } = operation as FullOperation
    const json = requestBody?.content['application/json']
    if (!json || (!requestBody.required && seed % 3 === 0)) return undefined
    const { schema } = json
    const arbitrary = arbitraryOf(prepared.given ?? {}, definitionsOf(this.#contract.document), schema)
    const validate = this.#validator(operation)
    const body = fc.sample(arbitrary, { seed, numRuns: 50 }).find((value) => validate(value))
    if (body === undefined) throw new Error(`nothing that is generated for ${operation.operationId} fits its schema`)
    const fixed = (prepared.fix?.(body as object as Record<string, unknown>) ?? body) as Record<string, unknown>
    return seed % 4 === 0 ? { ...fixed, unknownField: { a: [1, null, 'x'] }, constructor: 1, _id: 'x' } : fixed
  }

  #bodySchema(operation: ContractOperation): Schema | undefined {
    return (operation as FullOperation).requestBody?.content['application/json']?.schema
  }

  #validator(operation: ContractOperation) {
    const path = operation.path.replaceAll('~', '~0').replaceAll('/', '~1')
    const pointer = `#/paths/${encodeURIComponent(path)}/${operation.method.toLowerCase()}/requestBody/content/application~1json/schema`
    return this.#ajv.getSchema(`contract${pointer}`)!
  }

  #options(
    operation: ContractOperation,
    tenant: Tenant,
    prepared: Prepared,
    body?: Record<string, unknown>,
  ): CallOptions & { headers: Record<string, string> } {
    const isClient = operation.path.startsWith('/client/')
    const takesPdf = 'application/pdf' in ((operation as FullOperation).requestBody?.content ?? {})
    return {
      ...(takesPdf ? { rawBody: '%PDF-1.7\n%%EOF\n' } : {}),
      token: operation.needsToken ? (isClient ? tenant.account.token : this.#world.operatorKey) : undefined,
      query: { ...prepared.query },
      headers: { ...prepared.headers, ...(takesPdf ? { 'content-type': 'application/pdf' } : {}) },
      ...(body === undefined ? {} : { body }),
    }
  }

  #baseRequest(operation: ContractOperation, tenant: Tenant, prepared: Prepared, seed: number): BaseRequest {
    const body = this.#validBody(operation, prepared, seed | 1)
    return {
      options: this.#options(operation, tenant, prepared, body),
      prepared,
      needsToken: operation.needsToken,
      parameters: this.#parameters(operation),
      bodySchema: this.#bodySchema(operation),
      needsBody: (operation as FullOperation).requestBody?.required ?? false,
      fits: (other) => this.#validator(operation)(other) as boolean,
      definitions: definitionsOf(this.#contract.document),
    }
  }

  #parameters(operation: ContractOperation): Parameter[] {
    const definitions = definitionsOf(this.#contract.document)
    return ((operation as FullOperation).parameters ?? []).map((parameter) => {
      const resolved = definitions.resolve(parameter as Schema) as unknown as Parameter
      return { ...resolved, schema: definitions.resolve(resolved.schema) }
    })
  }

  async #call(outcome: Outcome, operation: ContractOperation, call: FaultyCall, prepared: Prepared): Promise<void> {
    const values = { ...prepared.path, ...call.pathValues }
    const path = operation.path.replace(/\{([^}]+)\}/g, (_, name: string) => values[name]!)
    outcome.sent += 1
    const fail = (why: string) => {
      const { token: _, ...shown } = call.options
      outcome.failures.push(`${operation.method} ${path.slice(0, 200)} (${call.what}): ${why}: ${describe(shown)}`)
    }
    try {
      const answer = await this.#insist(operation.method, path, call.options)
      outcome.statuses[answer.status] = (outcome.statuses[answer.status] ?? 0) + 1
      if (!call.statuses.includes(answer.status)) fail(`${answer.status} ${describe(answer.body)}`)
      else if (answer.status >= 400) requireErrorShape(answer, fail)
    } catch (error) {
      fail((error as Error).message)
    }
  }

  /** A busy database is told by 503 with Retry-After; on a machine with other work that is no fault, as long as it ends. */
  async #insist(method: string, path: string, options: CallOptions): Promise<Answer> {
    for (let tries = 1; ; tries++) {
      const answer = await this.#app.call(method, path, options)
      if (answer.status !== 503 || answer.headers['retry-after'] === undefined || tries === MAX_TRIES) return answer
      await new Promise((resolve) => setTimeout(resolve, 1000 * Number(answer.headers['retry-after'])))
    }
  }

  async #rowCounts(): Promise<Record<string, number>> {
    const { knex } = this.#app.database
    const [tables] = await knex.raw('SHOW TABLES')
    const names = tables
      .map((row: object) => String(Object.values(row)[0]))
      .filter((name: string) => !UNCOUNTED.has(name))
    const selects = names.map((name: string) => `SELECT '${name}' AS name, COUNT(*) AS n FROM ${name}`)
    const [rows] = await knex.raw(selects.join(' UNION ALL '))
    return Object.fromEntries(rows.map((row: { name: string; n: number }) => [row.name, Number(row.n)]))
  }
}

function requireErrorShape(answer: Answer, fail: (why: string) => void): void {
  const body = answer.body as { success: unknown; status: unknown; error?: { details?: unknown } }
  const isShaped = body.success === false && body.status === answer.status && typeof body.error?.details === 'string'
  if (!isShaped) fail(`not the error shape: ${describe(body)}`)
}

function takesKey(operation: ContractOperation): boolean {
  return JSON.stringify((operation as FullOperation).parameters ?? []).includes('IdempotencyKey')
}

async function inTurns(count: number, work: (n: number) => Promise<void>): Promise<void> {
  let next = 0
  const worker = async () => {
    while (next < count) await work(next++)
  }
  await Promise.all(Array.from({ length: AT_ONCE }, worker))
}

function shuffled<T>(items: T[], seed: number): T[] {
  const [sorted] = fc.sample(fc.shuffledSubarray(items, { minLength: items.length }), { seed, numRuns: 1 })
  return sorted!
}

function describe(value: unknown): string {
  return JSON.stringify(value)?.slice(0, 1500) ?? 'nothing'
}
