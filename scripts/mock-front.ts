/**
 * Stands before Prism 5.16. What comes in is read, checked and refused by the parts of the service that do so there; Prism gets
 * what fits the contract, written anew, and chooses the example. By itself it would answer a bad body with the example of 422, name
 * another fault than the request has, end on malformed JSON or a malformed `%`, and claim that every answer is a replay.
 */
import { randomUUID } from 'node:crypto'
import type { RequestListener } from 'node:http'
import { join } from 'node:path'
import express, { type Request, type Response } from 'express'
import { request as send } from 'undici'
import { createContractApi, type Trace, type ValidatedCall } from '../src/api.ts'
import { createIntegratorAuthentication } from '../src/auth/bearer-authentication.ts'
import { optionalPartyOfCall, type PartyParameters } from '../src/catalogue/party-rules.ts'
import { toErrorResponse } from '../src/error-response.ts'
import { badRequest, DomainError } from '../src/errors.ts'
import { requestIdOf, requireOneHost } from '../src/http-server.ts'
import { WITHOUT_KEY } from '../src/idempotency/idempotency.ts'
import { isIdempotentOperation, requireSoundKey } from '../src/idempotency/idempotency-rules.ts'
import { patientTokenOf } from '../src/patients/patient-authentication.ts'
import { invalidPatientToken } from '../src/patients/patient-token.ts'
import { Workload } from '../src/workload.ts'

const DEFINITION = join(import.meta.dirname, '..', 'src', 'generated', 'client.json')
/** Any will do. */
const TOKENS = { Authorization: 'Bearer any', 'Patient-Authorization': 'Bearer any' }
/** Prism's own, and a statement about a replay that never happened. */
const DROPPED_ANSWER_HEADERS = ['connection', 'keep-alive', 'transfer-encoding', 'content-length', 'date', 'sl-violations', 'idempotent-replayed'] // prettier-ignore

/** A subscribe that was answered 200: what is needed to send its events. */
export interface Subscription {
  endpoint: string
  events: string[]
  secret: string
}

interface Answer {
  status: number
  headers: Record<string, string | string[]>
  body: Buffer
}

/**
 * @param operationIds all that the contract has
 * @param say told one line for each request
 * @param onSubscribed called when the answer to a subscribe has been sent
 */
export async function createMockFront(
  operationIds: string[],
  prismUrl: string,
  say: (line: string) => void,
  onSubscribed: (subscription: Subscription) => Promise<void>,
): Promise<RequestListener> {
  const readCall = await createCallReader(operationIds)
  const app = express()
  app.disable('x-powered-by')
  app.set('query parser', false)
  app.use(async (req: Request, res: Response) => {
    const trace = traceOf(req)
    let call: ValidatedCall | undefined
    let answer: Answer
    try {
      requireOneHost(req)
      call = await readCall(req, res, trace)
      requireOneParty(trace, call)
      answer = await askPrism(prismUrl, req, trace, call)
    } catch (error) {
      answer = refusal(error, trace, say)
    }
    say(`${req.method} ${req.path} -> ${answer.status}${answer.status >= 400 ? `: ${detailsOf(answer)}` : ''}`)
    reply(res, trace, answer)
    if (trace.operation !== 'subscribeWebhook' || answer.status !== 200) return
    const { endpoint, events } = call!.body as unknown as Subscription
    const { secret } = JSON.parse(answer.body.toString('utf8')).data
    await onSubscribed({ endpoint, events, secret })
  })
  return (incoming, outgoing) => {
    const [req, res] = [incoming as Request, outgoing as Response]
    // Express goes past every handler where it can't parse a target.
    const fault = badRequest('the request target is not a valid URL', 'invalid_http')
    app(req, res, (error?: unknown) => {
      if (res.headersSent) return void res.destroy()
      reply(res, traceOf(req), refusal(error ?? fault, traceOf(req), say))
    })
  }
}

type ReadCall = (req: Request, res: Response, trace: Trace) => Promise<ValidatedCall>

/** The service's own reading of a request, with a handler for all operations that returns what it was called with. */
async function createCallReader(operationIds: string[]): Promise<ReadCall> {
  const authenticate = createIntegratorAuthentication({ verify: async (token) => token })
  const returnCall = async (call: ValidatedCall) => ({ status: 200, body: call })
  const api = await createContractApi({
    definition: DEFINITION,
    workload: new Workload(),
    security: {
      integrator: authenticate,
      patient: async (req) => {
        const token = patientTokenOf(req.headers['patient-authorization'])
        if (token === undefined) throw invalidPatientToken()
        return token
      },
    },
    idempotencyOf: (operationId, _security, key) => {
      if (key !== undefined && isIdempotentOperation(operationId)) requireSoundKey(key)
      return WITHOUT_KEY
    },
    handlers: Object.fromEntries(operationIds.map((id) => [id, returnCall])),
  })
  return async (req, res, trace) => (await api.answer(req, res, trace)).body as ValidatedCall
}

/** Of no mode: that both are not sent in one call the request alone shows. */
function requireOneParty({ operation }: Trace, { query, body }: ValidatedCall): void {
  const sent = operation === 'subscribeWebhook' ? body : query
  optionalPartyOfCall('party_scoped', sent as PartyParameters)
}

async function askPrism(
  prismUrl: string,
  req: Request,
  { requestId, route }: Trace,
  call: ValidatedCall,
): Promise<Answer> {
  const path = route!.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(call.path[name]!))
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(call.query)) query.set(name, String(value))
  const prefer = req.get('prefer')
  // Where one need not be there, an empty one says as much.
  const hasBody = Object.keys(call.body).length > 0
  const answer = await send(`${prismUrl}${path}${query.size > 0 ? `?${query}` : ''}`, {
    method: req.method as 'GET',
    headers: {
      ...TOKENS,
      ...(prefer === undefined ? {} : { Prefer: prefer }),
      ...(hasBody ? { 'Content-Type': 'application/json' } : {}),
    },
    body: hasBody ? JSON.stringify(call.body) : null,
  }).catch((error: Error) => {
    throw new DomainError('unavailable', 'mock_unavailable', 'Prism does not answer', { cause: error })
  })
  const { statusCode: status, headers } = answer
  const body = Buffer.from(await answer.body.arrayBuffer())
  const isExample = /^application\/json\b/.test(String(headers['content-type']))
  if (status < 400) return { status, headers: headers as Answer['headers'], body }
  if (isExample) return { status, headers: headers as Answer['headers'], body: ofThisRequest(body, requestId) }
  // Such as a `Prefer` that names an example which is not there.
  const { detail, title } = isJson(body) ? JSON.parse(body.toString('utf8')) : {}
  throw badRequest(detail ?? title ?? body.toString())
}

/** An example of an error names some request. */
function ofThisRequest(body: Buffer, requestId: string): Buffer {
  return Buffer.from(JSON.stringify({ ...JSON.parse(body.toString('utf8')), requestId }))
}

function traceOf(req: Request): Trace {
  return { requestId: requestIdOf(req, randomUUID) }
}

function refusal(error: unknown, { requestId }: Trace, say: (line: string) => void): Answer {
  if (!(error instanceof DomainError)) say(`failed: ${(error as Error).stack}`)
  const { status, headers, body } = toErrorResponse(error, requestId)
  return {
    status,
    headers: { ...headers, 'Content-Type': 'application/json', 'X-Request-Id': requestId },
    body: Buffer.from(JSON.stringify(body)),
  }
}

function reply(res: Response, { requestId }: Trace, { status, headers, body }: Answer): void {
  for (const [name, value] of Object.entries(headers)) {
    if (!DROPPED_ANSWER_HEADERS.includes(name.toLowerCase())) res.setHeader(name, value)
  }
  // As the service has them.
  if (res.hasHeader('Content-Type')) res.setHeader('Content-Type', 'application/json; charset=utf-8')
  if (status === 304) res.removeHeader('Content-Type')
  if (!res.hasHeader('Cache-Control')) res.setHeader('Cache-Control', 'no-store')
  res.setHeader('X-Content-Type-Options', 'nosniff')
  res.setHeader('X-Request-Id', requestId)
  res.writeHead(status)
  res.end(body)
}

function isJson(bytes: Buffer): boolean {
  try {
    JSON.parse(bytes.toString('utf8'))
    return true
  } catch {
    return false
  }
}

function detailsOf({ body }: Answer): string {
  return isJson(body) ? (JSON.parse(body.toString('utf8')).error?.details ?? '') : ''
}
