/**
 * The HTTP application: middleware order, contracts, errors, one log line a request. Never listens, never reads the
 * environment.
 */
import type { RequestListener } from 'node:http'
import { join } from 'node:path'
import express, {
  type ErrorRequestHandler,
  type Express,
  type Request,
  type RequestHandler,
  type Response,
} from 'express'
import { isConnectionFault, isRetriable } from '../db/connection.ts'
import type { Account } from './accounts/accounts-repository.ts'
import { createContractApi, type ContractApi, type Trace } from './api.ts'
import type { Reply } from './reply.ts'
import { createAccessTokens } from './auth/access-token.ts'
import { authenticateOperator, createIntegratorAuthentication, requireAccount } from './auth/bearer-authentication.ts'
import { RecentAccounts } from './auth/recent-accounts.ts'
import { serveDocuments } from './billing/document-files.ts'
import { monotonicMs } from './clock.ts'
import { CrmAdmission, LateCaller } from './crm/crm-admission.ts'
import { toErrorResponse } from './error-response.ts'
import { badRequest, DomainError, notFound, overloaded, unavailable } from './errors.ts'
import { requestIdOf, requireOneHost } from './http-server.ts'
import { createIdempotency } from './idempotency/idempotency.ts'
import { newId } from './ids.ts'
import { causeFields, errorFields, type Logger } from './logger.ts'
import type { RequestCounts } from './metrics-requests.ts'
import type { HandlerDeps } from './handlers.ts'
import { clientOperations, operatorOperations, type Handlers } from './operations.ts'
import { authenticatePatient } from './patients/patient-authentication.ts'
import { createPatientTokens } from './patients/patient-token.ts'
import { serveReportFiles } from './patients/report-files.ts'
import { serveReference } from './reference-pages.ts'
import { spanRequests } from './request-spans.ts'
import { isKnown, negotiateEncoding, Representation } from './representation.ts'
import { fileTooLarge } from './reports/report-store.ts'
import type { Tracing } from './spans.ts'
import { Workload } from './workload.ts'

const CONTRACTS = join(import.meta.dirname, 'generated')

export interface AppDeps extends Omit<HandlerDeps, 'accessTokens' | 'patientTokens'> {
  logger: Logger
  accessTokenTtlSeconds: number
  /** CRM calls that an account may make in a minute. */
  crmCalls: number
  /** Requests that may wait for the database at a time, of each contract; left out: as the service has it. */
  mostWaiting?: number | undefined
  /** What a report's file may have, in bytes. */
  reportMaxBytes: number
  /** What `/readyz` says, and whether connections should end with their answer. */
  readiness: { fault: string | undefined; isDraining: boolean }
  /** Counts what is answered. */
  requests: RequestCounts
  /** undefined: off. */
  tracing?: Tracing | undefined
  /** Where the rendered contracts are. */
  referenceDir: string
  /** Which contracts this listener serves; every path of another one is 404. */
  serves: { client: boolean; operator: boolean }
}

/** @throws when a contract can't be read or does not fit its handlers */
export async function createApp(deps: AppDeps): Promise<RequestListener> {
  const app = express()
  const workloads: Workloads = {
    '/client/': new Workload(deps.mostWaiting),
    '/operator/': new Workload(deps.mostWaiting),
    '/files/': new Workload(deps.mostWaiting),
  }
  const fileDeps = { ...deps, knex: deps.database.knex, workload: workloads['/files/'] }
  app.disable('x-powered-by')
  app.disable('etag')
  app.enable('case sensitive routing')
  app.enable('strict routing')
  app.set('query parser', false)

  app.use(traceRequest(deps))
  app.use(requireHost)
  app.all(
    '/livez',
    probe(() => {}),
  )
  app.all(
    '/readyz',
    probe(() => {
      if (deps.readiness.fault !== undefined) throw unavailable(deps.readiness.fault)
    }),
  )
  const accessTokens = createAccessTokens(deps.keys, deps.clock, deps.accessTokenTtlSeconds)
  const handlerDeps: HandlerDeps = { ...deps, accessTokens, patientTokens: createPatientTokens(deps.keys, deps.clock) }
  app.use(serveReference(deps))
  if (deps.serves.client) app.use(serveReportFiles(fileDeps))
  if (deps.serves.client) app.use(serveDocuments(fileDeps))
  if (deps.tracing) app.use(spanRequests(deps.tracing, deps.clock))
  if (deps.serves.client)
    app.use(dispatch('/client/', await createClientApi(handlerDeps, workloads['/client/'], deps.crmCalls)))
  if (deps.serves.operator)
    app.use(dispatch('/operator/', await createOperatorApi(handlerDeps, workloads['/operator/'], deps.reportMaxBytes)))
  app.use(() => {
    throw notFound('there is nothing at this path')
  })
  app.use(answerError)
  return refuseTooMany(workloads, traceRequest(deps), answerAlways(app, traceRequest(deps)))
}

/** What the lab's own people do is not kept waiting by integrators, nor either by patients who follow links, and the other way round. */
type Workloads = Record<'/client/' | '/operator/' | '/files/', Workload>

/** What a target in absolute form has before its path (RFC 9112 3.2.2). */
const ORIGIN = /^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i

/**
 * Before anything else looks at a request: where many are refused, what that takes is taken from the others. Probes are no
 * operations, and always answered.
 */
function refuseTooMany(workloads: Workloads, trace: RequestHandler, next: RequestListener): RequestListener {
  const prefixes = Object.keys(workloads) as (keyof Workloads)[]
  return (incoming, outgoing) => {
    const path = incoming.url!.replace(ORIGIN, '')
    const prefix = prefixes.find((known) => path.startsWith(known))
    if (!prefix || !workloads[prefix].isFull) return next(incoming, outgoing)
    const [req, res] = [incoming as Request, outgoing as Response]
    res.locals = {}
    trace(req, res, () => answerError(overloaded(), req, res, () => {}))
  }
}

/** Express goes past every handler where it can't parse a target (`http://[::1/client/labs`), and would answer in HTML. */
function answerAlways(app: Express, trace: RequestHandler): RequestListener {
  return (incoming, outgoing) => {
    const [req, res] = [incoming as Request, outgoing as Response]
    app(req, res, () => {
      const fault = badRequest('the request target is not a valid URL', 'invalid_http')
      trace(req, res, () => answerError(fault, req, res, () => {}))
    })
  }
}

async function createClientApi(deps: HandlerDeps, workload: Workload, crmCalls: number): Promise<ContractApi> {
  const { knex } = deps.database
  const accounts = new RecentAccounts(knex, deps.clock)
  const admission = new CrmAdmission(deps.database.batch, crmCalls, (accountId) => accounts.get(accountId))
  const authenticate = createIntegratorAuthentication(deps.accessTokens)
  return createContractApi({
    definition: join(CONTRACTS, 'client.json'),
    workload,
    handlers: withCurrentAccount(clientOperations(deps), accounts),
    admit: admission.admit,
    idempotencyOf: createIdempotency(deps),
    security: {
      integrator: async (req, res, trace) => {
        const accountId = await authenticate(req)
        const late = isAdmittedLate(req, trace) ? admission.callerOf(accountId, res) : undefined
        const caller = late ?? requireAccount(await accounts.get(accountId))
        trace.accountId = caller.id
        return caller
      },
      // Schemes are asked side by side, and a patient's token counts within the caller's account only.
      patient: async (req) => {
        const account = requireAccount(await accounts.get(await authenticate(req)))
        return authenticatePatient({ ...deps, knex }, account.id, req.headers['patient-authorization'])
      },
    },
  })
}

/**
 * A body may be long in coming, and a key be waited for: what an account is counts as it is then, not as it was when its token was seen.
 * One that is admitted late is read by its own transaction.
 */
function withCurrentAccount(handlers: Handlers, accounts: RecentAccounts): Handlers {
  return Object.fromEntries(
    Object.entries(handlers).map(([operationId, handler]) => [
      operationId,
      async (call) => {
        const { integrator } = call.security as { integrator?: unknown }
        if (!integrator || integrator instanceof LateCaller) return handler(call)
        const account = requireAccount(await accounts.get((integrator as Account).id))
        return handler({ ...call, security: { ...call.security, integrator: account } })
      },
    ]),
  )
}

/** A repeat is answered by what is kept for its key, after its caller is admitted. */
function isAdmittedLate(req: Request, trace: Trace): boolean {
  return trace.operation === 'createEntry' && req.headers['idempotency-key'] === undefined
}

async function createOperatorApi(deps: HandlerDeps, workload: Workload, reportMaxBytes: number): Promise<ContractApi> {
  return createContractApi({
    definition: join(CONTRACTS, 'operator.json'),
    workload,
    handlers: operatorOperations(deps),
    idempotencyOf: createIdempotency(deps),
    receiveFile: async (req) => {
      if (Number(req.headers['content-length'] ?? 0) > reportMaxBytes) throw fileTooLarge(reportMaxBytes)
      return deps.reportStore.receive(req, deps.clock.nowMs())
    },
    discardFile: ({ id }) => deps.reportStore.remove(id),
    security: {
      operatorKey: (req) => authenticateOperator(deps.database.knex, req),
    },
  })
}

/** What every answer carries, and the line that is logged when it is through. */
function traceRequest({ clock, logger, readiness, requests }: AppDeps): RequestHandler {
  return (req, res, next) => {
    const startedAt = monotonicMs()
    const trace: Trace = { requestId: requestIdOf(req, () => newId(clock.nowMs())) }
    res.locals.trace = trace
    res.setHeader('X-Request-Id', trace.requestId)
    res.setHeader('X-Content-Type-Options', 'nosniff')
    // Answers hold tokens, secrets and patients' data.
    res.setHeader('Cache-Control', 'no-store')
    res.locals.readiness = readiness
    requests.inFlight += 1
    res.on('close', () => {
      const status = res.headersSent ? res.statusCode : undefined
      const durationMs = monotonicMs() - startedAt
      requests.inFlight -= 1
      requests.completed(trace.operation, res.writableFinished ? status : undefined, durationMs)
      const failure = res.statusCode === 500 ? errorFields(res.locals.error) : causeFields(res.locals.error?.cause)
      logger[res.statusCode === 500 ? 'error' : 'info']('request.completed', {
        method: req.method,
        route: trace.route,
        operation: trace.operation,
        status,
        code: res.locals.error instanceof DomainError ? res.locals.error.code : undefined,
        durationMs: Math.round(durationMs),
        requestId: trace.requestId,
        accountId: trace.accountId,
        traceId: trace.traceId,
        state: res.writableFinished ? undefined : 'aborted',
        ...failure,
      })
    })
    next()
  }
}

const requireHost: RequestHandler = (req, _res, next) => {
  requireOneHost(req)
  next()
}

function probe(check: () => void): RequestHandler {
  return (req, res) => {
    res.locals.trace.route = req.path
    if (req.method !== 'GET' && req.method !== 'HEAD') {
      throw new DomainError('method_not_allowed', 'method_not_allowed', 'this path takes GET, HEAD', {
        headers: { Allow: 'GET, HEAD' },
      })
    }
    check()
    reply(res, { status: 200, body: { status: 'ok' } })
  }
}

function dispatch(prefix: string, contract: ContractApi): RequestHandler {
  return async (req, res, next) => {
    if (!req.path.startsWith(prefix)) return next()
    const answer = await contract.answer(req, res, res.locals.trace)
    if (answer.body instanceof Representation) return replyWith(req, res, answer.body)
    reply(res, answer)
  }
}

/** The last stop of everything thrown. Express knows it by its four parameters. */
const answerError: ErrorRequestHandler = (error: unknown, _req: Request, res: Response, _next) => {
  const known = isConnectionFault(error) || isRetriable(error) ? unavailable(DATABASE_FAULT, 1, error) : error
  res.locals.error = known
  reply(res, toErrorResponse(known, res.locals.trace.requestId))
}

const DATABASE_FAULT = 'the service is temporarily unavailable'

function reply(res: Response, { status, body, headers = {} }: Reply): void {
  res.statusCode = status
  for (const [name, value] of Object.entries(headers)) res.setHeader(name, value)
  res.setHeader('Content-Type', 'application/json; charset=utf-8')
  endReply(res, JSON.stringify(body))
}

/** To the client that has it already: 304 and nothing more. */
async function replyWith(req: Request, res: Response, body: Representation<unknown>): Promise<void> {
  const encoding = negotiateEncoding(req, body)
  res.setHeader('ETag', body.etag(encoding))
  res.setHeader('Vary', 'Authorization, Accept-Encoding')
  // A client may keep it, and asks each time whether it still holds.
  res.setHeader('Cache-Control', 'private, no-cache')
  if (isKnown(req, body.etag(encoding))) {
    res.statusCode = 304
    return endReply(res)
  }
  const bytes = await body.encoded(encoding)
  res.setHeader('Content-Type', 'application/json; charset=utf-8')
  if (encoding !== 'identity') res.setHeader('Content-Encoding', encoding)
  endReply(res, bytes)
}

function endReply(res: Response, bytes?: string | Buffer): void {
  // The last answer on this connection: the next request belongs to another process.
  if (res.locals.readiness.isDraining) res.setHeader('Connection', 'close')
  res.end(bytes)
}
