/**
 * A contract put to work: routes, tokens, limits and validation in the order of decisions 9, then the operation's handler.
 * The only importer of openapi-backend. Everything that is refused is thrown; `app.ts` turns it into an answer.
 */
import { readFile } from 'node:fs/promises'
import type { Request as ExpressRequest, Response as ExpressResponse } from 'express'
import { Ajv2020 } from 'ajv/dist/2020.js'
import addFormats, { type FormatsPlugin } from 'ajv-formats'
import {
  OpenAPIBackend,
  ValidationContext,
  type AjvCustomizer,
  type Context,
  type Document,
  type Operation,
  type Request,
} from 'openapi-backend'
import type { DatabaseBudget } from '../db/connection.ts'
import { parseDateTime } from './crm/zoned-time.ts'
import { decodable, firstSecurityFault, methodNotAllowed, validationFault } from './api-refusals.ts'
import { DomainError, notFound } from './errors.ts'
import {
  WITHOUT_KEY,
  type Idempotency,
  type IdempotencyOf,
  type RequestIdempotency,
} from './idempotency/idempotency.ts'
import type { StoredFile } from './reports/report-store.ts'
import type { JsonSchema } from './known-fields.ts'
import { readJsonBody, readOptionalJsonBody, RefusedBody, requireMediaType, type JsonObject } from './request-body.ts'
import { queryOf } from './request-query.ts'
import type { Reply } from './reply.ts'
import type { Workload } from './workload.ts'

/** What a handler is called with: validated, and of the query only what the contract knows. */
export interface ValidatedCall {
  body: JsonObject
  query: Record<string, string>
  path: Record<string, string>
  requestId: string
  idempotency: Idempotency
  /** Where the operation takes a file instead of JSON. */
  file: StoredFile | undefined
  /** What the security handlers found, by scheme. */
  security: Record<string, unknown>
}

/** What is known of a request as it goes along; the log line is made of it. */
export interface Trace {
  requestId: string
  /** The path's template, never its values. */
  route?: string
  operation?: string
  accountId?: string
  /** Where the request is traced. */
  traceId?: string | undefined
}

export type SecurityHandler = (req: ExpressRequest, res: ExpressResponse, trace: Trace) => Promise<unknown>

export interface ContractApi {
  operationIds: string[]
  /** @throws DomainError for everything that is refused, or what the handler throws */
  answer(req: ExpressRequest, res: ExpressResponse, trace: Trace): Promise<Reply>
}

/**
 * Asked of every operation once its caller is known; throws where the call may not go on. Where the operation's handler sees to
 * that itself it returns what is to be asked if the request is refused before that.
 */
export type Admission = (
  operationId: string,
  security: Record<string, unknown>,
  res: ExpressResponse,
) => Promise<(() => Promise<void>) | undefined>

export interface ContractOptions {
  /** Path of what is left of the OpenAPI document for requests, as JSON. */
  definition: string
  /** Told of each request that waits for the database. */
  workload: Workload
  security: Record<string, SecurityHandler>
  /** Comes after 401, and before anything that the body or the query could be faulted for. */
  admit?: Admission
  /** Asked once the body is read: a body that can't be read has no answer that could be kept. */
  idempotencyOf?: IdempotencyOf
  /** Takes in the body of an operation that has a PDF for one; asked like the reader of JSON, and after the same checks. */
  receiveFile?: (req: ExpressRequest) => Promise<StoredFile>
  /** Called with a file whose request was refused. */
  discardFile?: (file: StoredFile) => Promise<void>
  handlers: Record<string, (call: ValidatedCall) => Promise<Reply>>
}

const PDF = 'application/pdf'
const JSON_TYPE = 'application/json'

interface RequestBodyOf {
  required?: boolean
  content?: Record<string, { schema?: JsonSchema }>
}

/** One request on its way through openapi-backend. */
interface Incoming {
  req: ExpressRequest
  res: ExpressResponse
  trace: Trace
  budget: DatabaseBudget
  idempotency: RequestIdempotency
  /** Asked before the request is refused, until its handler is. */
  admitLate?: (() => Promise<void>) | undefined
  file?: StoredFile
  /** What openapi-backend validates: it gets its query once the operation is known, and its body once the caller is. */
  request: Request
}

/**
 * Reads the contract. An operation's validators are compiled when it is first called, once: all of them together would take half
 * of the start's time.
 * @throws when the document can't be read, or a handler has no operation or an operation no handler
 */
export async function createContractApi(options: ContractOptions): Promise<ContractApi> {
  const contract = new OpenAPIBackend({
    definition: JSON.parse(await readFile(options.definition, 'utf8')) as Document,
    // Compiles late, and leaves out a check that knows OpenAPI 3.0 only; ours is the linter's.
    quick: true,
    strict: true,
    // Only so that it reads the request anew once query and body are there; see `chooseAjv`.
    coerceTypes: true,
    ignoreTrailingSlashes: false,
    ajvOpts: { allErrors: true, strict: false, verbose: true },
    customizeAjv: chooseAjv(),
  })
  await contract.init()
  // Computed anew for each request otherwise.
  const operations = contract.router.getOperations()
  contract.router.getOperations = () => operations
  readLess(contract.router, operations)

  for (const [scheme, handler] of Object.entries(options.security)) {
    contract.registerSecurityHandler(scheme, (_: Context, { req, res, trace, budget }: Incoming) =>
      budget.spend(() => handler(req, res, trace)),
    )
  }
  contract.register({
    notFound: () => {
      throw notFound('there is nothing at this path')
    },
    methodNotAllowed: (context) => {
      throw methodNotAllowed(contract, context.request.path)
    },
    unauthorizedHandler: (context) => {
      throw firstSecurityFault(context)
    },
    validationFail: (context) => {
      const fault = validationFault(context)
      forgetFaults(contract, context.operation.operationId!)
      throw fault
    },
    postRoutingHandler: takeRoute,
    postSecurityHandler: async (context: Context, incoming: Incoming) => {
      if (!isAuthorized(context)) return
      const { operation, security } = context
      const admit = async () => options.admit?.(operation.operationId!, security, incoming.res)
      incoming.admitLate = await incoming.budget.spend(admit)
      const refused = await takeBody(context, incoming, options.receiveFile)
      await takeKey(context, incoming, options.idempotencyOf)
      if (refused) throw refused
    },
  })
  for (const operation of operations) {
    const handler = options.handlers[operation.operationId!]
    if (!handler) throw new Error(`operation ${operation.operationId} has no handler`)
    contract.register(operation.operationId!, (context: Context, incoming: Incoming) => {
      incoming.admitLate = undefined
      return incoming.budget.spend(() => handler(toCall(context, incoming)))
    })
  }

  return {
    operationIds: operations.map((operation) => operation.operationId!),
    answer: async (req, res, trace) => {
      const request: Request = { method: req.method, path: decodable(req.path), headers: {}, query: {} }
      const budget = options.workload.budget()
      const incoming: Incoming = { req, res, trace, request, budget, idempotency: WITHOUT_KEY }
      try {
        return await contract.handleRequest(request, incoming)
      } catch (error) {
        if (incoming.admitLate) await budget.spend(incoming.admitLate)
        // Refused, so that no row knows the file. After any other fault the commit is in doubt, and the store sweeps later.
        const isRefused = error instanceof DomainError && error.kind !== 'unavailable'
        if (incoming.file && isRefused) await options.discardFile?.(incoming.file)
        return await budget.spend(() => incoming.idempotency.settle(error))
      }
    },
  }
}

/**
 * openapi-backend reads a request four times over, with cookies, headers and copies that nothing here asks for, and looks for its
 * operation among all of them. Where a path has no parameter there is little to read; the others stay with it.
 */
function readLess(router: OpenAPIBackend['router'], operations: Operation[]): void {
  const { matchOperation, parseRequest } = router
  const hasParameters = ({ path }: Operation) => path.includes('{')
  const known = new Map(
    operations
      .filter((operation) => !hasParameters(operation))
      .map((operation) => [`${operation.method} ${operation.path}`, operation]),
  )
  router.matchOperation = ((request: Request, strict: boolean) =>
    known.get(`${request.method.toLowerCase()} ${request.path}`) ??
    matchOperation.call(router, request, strict)) as typeof matchOperation
  router.parseRequest = (request, operation) => {
    if (operation && hasParameters(operation)) return parseRequest.call(router, request, operation)
    const { path, body } = request
    const query = { ...(request.query as Record<string, string>) }
    return {
      method: request.method.toLowerCase(),
      path,
      params: {},
      headers: {},
      query,
      cookies: {},
      body,
      requestBody: body,
    }
  }
}

/**
 * One validator for bodies and one for parameters. Neither coerces: `queryOf` has read what is no text. Answers are held to the
 * contract by the tests.
 */
function chooseAjv(): AjvCustomizer {
  const validators = new Map<ValidationContext, Ajv2020>()
  return (_, ajvOptions, context) => {
    const ajv = validators.get(context) ?? createAjv({ ...ajvOptions, coerceTypes: false })
    validators.set(context, ajv)
    return ajv as never
  }
}

/** A validator keeps its last faults until its next call, and with them the values at fault: a patient's, maybe. */
function forgetFaults(contract: OpenAPIBackend, operationId: string): void {
  for (const validate of contract.validator.getRequestValidatorsForOperation(operationId) ?? []) validate.errors = null
}

/** Validates JSON Schema 2020-12 as OpenAPI 3.1 means it, with formats and exact money. */
export function createAjv(ajvOptions: object): Ajv2020 {
  const ajv = new Ajv2020(ajvOptions)
  ;(addFormats as unknown as FormatsPlugin)(ajv)
  ajv.addFormat('iso-date-time', (text: string) => parseDateTime(text, 'UTC') !== undefined)
  // Not `multipleOf: 0.01`: validators divide for that, so that for most of them 19.99 is no such number, and 1.005 is one.
  ajv.addKeyword({
    keyword: 'x-decimals',
    type: 'number',
    schemaType: 'number',
    validate: (decimals: number, value: number) => hasDecimals(value, decimals),
  })
  return ajv
}

/** Whether the value is the number that a decimal with at most so many digits behind its point reads as. */
function hasDecimals(value: number, most: number): boolean {
  return Number(value.toFixed(most)) === value
}

/** Called with an operation or, where none was found, without one. Of the query only what the contract knows goes on. */
function takeRoute(context: Context, { req, trace, request }: Incoming): void {
  const { operation } = context
  if (!operation) return
  trace.route = operation.path
  trace.operation = operation.operationId!
  request.query = queryOf(operation, req.url) as Record<string, string>
}

/** The body is read only for a caller who may call: 401 comes before anything that the body could be faulted for. */
function isAuthorized({ operation, security }: Context): boolean {
  return (operation.security ?? []).length === 0 || security.authorized
}

/** @returns the refusal of a body that has come whole: its key, where it has one, is looked at first */
async function takeBody(
  context: Context,
  incoming: Incoming,
  receiveFile: ContractOptions['receiveFile'],
): Promise<RefusedBody | undefined> {
  try {
    await readBody(context, incoming, receiveFile)
    return undefined
  } catch (error) {
    if (!(error instanceof RefusedBody)) throw error
    incoming.request.body = error.bytes.toString('latin1')
    return error
  }
}

async function readBody(
  { operation }: Context,
  incoming: Incoming,
  receiveFile: ContractOptions['receiveFile'],
): Promise<void> {
  const { req, request } = incoming
  const requestBody = operation.requestBody as RequestBodyOf | undefined
  const schema = requestBody?.content?.[JSON_TYPE]?.schema
  if (!requestBody) {
    // What is not asked for is ignored, within the limits; of a GET nobody reads it.
    if (operation.method !== 'get') await readOptionalJsonBody(req, schema)
    return
  }
  if (!requestBody.required) {
    const body = await readOptionalJsonBody(req, schema)
    if (body) request.body = body
    return
  }
  if (receiveFile && PDF in (requestBody.content ?? {})) {
    requireMediaType(req, PDF)
    incoming.file = await receiveFile(req)
  } else {
    request.body = await readJsonBody(req, schema)
  }
}

/** Before validation, whose refusals are kept, too. */
async function takeKey(
  { operation, security, request: parsed }: Context,
  incoming: Incoming,
  of?: IdempotencyOf,
): Promise<void> {
  const { req, request, budget } = incoming
  const key = req.get('idempotency-key')
  const asked = { body: request.body, path: parsed.params ?? {}, query: request.query as Record<string, string> }
  incoming.idempotency = of?.(operation.operationId!, security, key, asked) ?? WITHOUT_KEY
  if (incoming.idempotency === WITHOUT_KEY) return
  await budget.spend(() => incoming.idempotency.lookUp())
}

function toCall(context: Context, { trace, idempotency, file }: Incoming): ValidatedCall {
  const { request, security } = context
  return {
    body: (request.requestBody ?? {}) as JsonObject,
    query: request.query,
    path: request.params,
    requestId: trace.requestId,
    idempotency,
    file,
    security,
  }
}
