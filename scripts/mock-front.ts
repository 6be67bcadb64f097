/**
 * Stands before Prism 5.16 and mends what it can't be told: a request outside the contract gets a 422 example although the
 * contract says 400, its body names another fault than the request has, malformed JSON ends the process, every answer
 * claims to be a replay, and sample events have no signature.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { request as send } from 'undici'
import { DomainError, type FieldFault } from '../src/errors.ts'
import { toErrorResponse } from '../src/error-response.ts'

/** Of the contract. */
const BODY_MAX_BYTES = 256 * 1024
const HOP_HEADERS = ['connection', 'keep-alive', 'transfer-encoding', 'content-length', 'host', 'expect', 'upgrade']
/** Prism's own, and a statement about a replay that never happened. */
const DROPPED_ANSWER_HEADERS = [...HOP_HEADERS, 'sl-violations', 'idempotent-replayed', 'date']

/** Prism lowers the names of query parameters, in its sentences too. */
const PARAMETER_NAMES: Record<string, string> = { labid: 'labID', branchid: 'branchID', corporateuser: 'corporateUser' }
const LOWERED = new RegExp(`\\b(${Object.keys(PARAMETER_NAMES).join('|')})\\b`, 'g')

/** RFC 6750 2.1; the name of a scheme is the same in small and capital letters (RFC 9110 11.1). */
const TOKEN = /^Bearer +([A-Za-z0-9._~+/-]+=*)$/i

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

interface Violation {
  location: string[]
  severity: string
  message: string
}

/**
 * @param say told one line for each request
 * @param onSubscribed called when the answer to a subscribe has been sent
 */
export function createMockFront(
  prismUrl: string,
  say: (line: string) => void,
  onSubscribed: (subscription: Subscription) => Promise<void>,
): Server {
  return createServer((request, response) => {
    handle(prismUrl, request, response, say, onSubscribed).catch((error: Error) => {
      say(`${request.method} ${request.url} failed: ${error.message}`)
      if (response.headersSent) return response.destroy()
      reply(response, refusal(new DomainError('unavailable', 'mock_unavailable', 'Prism does not answer'), request))
    })
  })
}

async function handle(
  prismUrl: string,
  request: IncomingMessage,
  response: ServerResponse,
  say: (line: string) => void,
  onSubscribed: (subscription: Subscription) => Promise<void>,
): Promise<void> {
  const body = await readBody(request)
  const answer = await answerOf(prismUrl, request, body)
  const path = (request.url ?? '/').split('?')[0]!
  say(`${request.method} ${path} -> ${answer.status}${answer.status >= 400 ? `: ${detailsOf(answer)}` : ''}`)
  reply(response, answer)
  if (request.method !== 'POST' || path !== '/client/events/subscribe' || answer.status !== 200) return
  const { endpoint, events } = JSON.parse(body!.toString('utf8'))
  const { secret } = JSON.parse(answer.body.toString('utf8')).data
  await onSubscribed({ endpoint, events, secret })
}

async function answerOf(prismUrl: string, request: IncomingMessage, body: Buffer | undefined): Promise<Answer> {
  if (!body) {
    return refusal(new DomainError('payload_too_large', 'payload_too_large', 'the body is larger than 256 KB'), request)
  }
  const isMalformed = /json/i.test(request.headers['content-type'] ?? '') && body.length > 0 && !isJson(body)
  // Without the body Prism still says what is refused before it: the path, the method, the token.
  const answer = await askPrism(prismUrl, request, isMalformed ? Buffer.alloc(0) : body)
  if (isMalformed && ![401, 404, 405, 415].includes(answer.status)) {
    return refusal(new DomainError('bad_request', 'malformed_json', 'the body is not valid JSON'), request)
  }
  return inContractShape(answer, request)
}

async function askPrism(prismUrl: string, request: IncomingMessage, body: Buffer): Promise<Answer> {
  const headers = Object.fromEntries(
    Object.entries(request.headers).filter(([name, value]) => value !== undefined && !HOP_HEADERS.includes(name)),
  ) as Record<string, string | string[]>
  // Prism takes a scheme by its letters, and whatever stands in the patient's header for a token.
  for (const name of ['authorization', 'patient-authorization']) {
    const token = TOKEN.exec(String(headers[name] ?? ''))?.[1]
    if (token === undefined) delete headers[name]
    else headers[name] = `Bearer ${token}`
  }
  const answer = await send(`${prismUrl}${request.url ?? '/'}`, {
    method: (request.method ?? 'GET') as 'GET',
    headers,
    body: body.length > 0 ? body : null,
  })
  return {
    status: answer.statusCode,
    headers: answer.headers as Record<string, string | string[]>,
    body: Buffer.from(await answer.body.arrayBuffer()),
  }
}

/** Prism's faults as the service would say them; an example stays as it is. */
function inContractShape(answer: Answer, request: IncomingMessage): Answer {
  const { status, headers } = answer
  const violations = readViolations(headers['sl-violations'])
  if (violations.length > 0 && status === 401) {
    const missing = TOKEN.test(request.headers.authorization ?? '') ? 'patient' : 'access'
    return refusal(new DomainError('unauthorized', `invalid_${missing}_token`, `invalid ${missing} token`), request)
  }
  if (violations.length > 0 && (status === 400 || status === 422)) {
    const fields = violations.map(toFieldFault)
    const details = violations.map(({ message }) => message).join('; ')
    return refusal(new DomainError('bad_request', 'invalid_request', details, { fields }), request)
  }
  if (status < 400 || /^application\/json\b/.test(String(headers['content-type']))) return answer
  if (status === 404 && !request.headers.prefer) {
    return refusal(new DomainError('not_found', 'not_found', 'there is no such path in the contract'), request)
  }
  if (status === 405) {
    const details = `${request.method} is not allowed here`
    return refusal(new DomainError('method_not_allowed', 'method_not_allowed', details), request)
  }
  // Such as a `Prefer` that names an example which is not there.
  const { detail, title } = isJson(answer.body) ? JSON.parse(answer.body.toString('utf8')) : {}
  return refusal(new DomainError('bad_request', 'invalid_request', detail ?? title ?? answer.body.toString()), request)
}

function readViolations(header: string | string[] | undefined): Violation[] {
  if (!header) return []
  try {
    const all = JSON.parse(String(header).replace(LOWERED, (name) => PARAMETER_NAMES[name]!)) as Violation[]
    return all.filter(({ severity, location }) => severity === 'Error' && location[0] === 'request')
  } catch {
    // It was too long for a header and cut.
    return [{ location: ['request'], severity: 'Error', message: 'the request does not fit the contract' }]
  }
}

/** Prism locates a missing property at its parent; its name stands in the sentence. */
function toFieldFault({ location, message }: Violation): FieldFault {
  const missing = /must have required property '([^']+)'/.exec(message)?.[1]
  const field = [...location.slice(2), ...(missing ? [missing] : [])].join('.')
  return { field, message: missing ? 'is required' : message }
}

function refusal(error: DomainError, request: IncomingMessage): Answer {
  const requestId = String(request.headers['x-request-id'] ?? 'mock')
  const { status, headers, body } = toErrorResponse(error, requestId)
  return {
    status,
    headers: { ...headers, 'Content-Type': 'application/json', 'X-Request-Id': requestId },
    body: Buffer.from(JSON.stringify(body)),
  }
}

function reply(response: ServerResponse, { status, headers, body }: Answer): void {
  for (const [name, value] of Object.entries(headers)) {
    if (!DROPPED_ANSWER_HEADERS.includes(name.toLowerCase())) response.setHeader(name, value)
  }
  const own = response.req.headers['x-request-id']
  if (own) response.setHeader('X-Request-Id', own)
  response.writeHead(status)
  response.end(body)
}

/** @returns undefined when it is larger than the contract allows; the rest of it is read and thrown away */
async function readBody(request: IncomingMessage): Promise<Buffer | undefined> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length
    if (size <= BODY_MAX_BYTES) chunks.push(chunk)
  }
  return size <= BODY_MAX_BYTES ? Buffer.concat(chunks) : undefined
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
