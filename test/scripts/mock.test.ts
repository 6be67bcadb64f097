import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { Webhook } from 'standardwebhooks'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { makeSureOfDevTls, type DevTls } from '../../scripts/dev-tls.ts'
import { startHttpsReceiver } from '../../scripts/https-receiver.ts'
import { ContractChecker, type ContractOperation } from '../support/contract-checker.ts'
import { sendRaw } from '../support/send-raw.ts'

const SCRIPT = join(import.meta.dirname, '..', '..', 'scripts', 'mock.ts')
const contract = new ContractChecker('client.yaml')

interface Parameter {
  name: string
  in: 'query' | 'path' | 'header'
  required?: boolean
  example?: unknown
}

/** The part of an operation that the checker has no need of. */
interface RequestSide {
  parameters?: (Parameter | { $ref: string })[]
  requestBody?: { required?: boolean; content: { 'application/json': { examples: Record<string, { value: object }> } } }
}

let dataDir: string
let tls: DevTls
let mock: ChildProcess
let baseUrl: string

beforeAll(async () => {
  dataDir = mkdtempSync(join(tmpdir(), 'lis-mock-'))
  tls = await makeSureOfDevTls(dataDir, Date.now())
  mock = spawn(process.execPath, [SCRIPT], {
    env: { ...process.env, DATA_DIR: dataDir, MOCK_PORT: '0', HOST: '127.0.0.1' },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  baseUrl = await new Promise<string>((resolve, reject) => {
    createInterface({ input: mock.stdout! }).on('line', (line) => {
      const url = /listening on (http:\S+?);/.exec(line)?.[1]
      if (url) resolve(url)
    })
    mock.on('exit', (code) => reject(new Error(`the mock ended with code ${code}`)))
  })
})

afterAll(async () => {
  mock.kill('SIGTERM')
  await once(mock, 'exit')
  rmSync(dataDir, { recursive: true, force: true })
})

function parametersOf(operation: ContractOperation): Parameter[] {
  return ((operation as RequestSide).parameters ?? []).map((parameter) => {
    if (!('$ref' in parameter)) return parameter
    const components = contract.document.components as { parameters: Record<string, Parameter> }
    return components.parameters[parameter.$ref.split('/').at(-1)!]!
  })
}

interface MockRequest {
  path: string
  method: string
  headers: Record<string, string>
  body?: object
}

/** As the contract's own examples have it. */
function validRequest(operation: ContractOperation): MockRequest {
  const required = parametersOf(operation).filter((parameter) => parameter.required)
  let path = operation.path
  const query = new URLSearchParams()
  for (const { name, in: place, example } of required) {
    if (place === 'path') path = path.replace(`{${name}}`, String(example))
    if (place === 'query') query.set(name, String(example))
  }
  const content = (operation as RequestSide).requestBody?.content['application/json']
  const body = content && Object.values(content.examples)[0]!.value
  return {
    path: query.size > 0 ? `${path}?${query}` : path,
    method: operation.method,
    headers: {
      ...(operation.needsToken
        ? { authorization: 'Bearer any', 'patient-authorization': 'Bearer any' }
        : ({} as Record<string, string>)),
      ...(body ? { 'content-type': 'application/json' } : {}),
    },
    ...(body ? { body } : {}),
  }
}

async function send({ path, method, headers, body }: MockRequest) {
  const response = await fetch(`${baseUrl}${path}`, {
    method,
    headers,
    ...(body ? { body: JSON.stringify(body) } : {}),
  })
  const text = await response.text()
  const answer = {
    status: response.status,
    headers: Object.fromEntries(response.headers),
    body: text ? JSON.parse(text) : undefined,
  }
  contract.check(method, path.split('?')[0]!, answer)
  return answer
}

function operationOf(operationId: string): ContractOperation {
  return contract.operations.find((operation) => operation.operationId === operationId)!
}

function examplesOf(operation: ContractOperation, status: number): unknown[] {
  const content = operation.responses[status]?.content?.['application/json'] as
    { examples: Record<string, { value: unknown }> } | undefined
  return Object.values(content?.examples ?? {}).map(({ value }) => value)
}

const operations = contract.operations.map((operation) => [operation.operationId, operation] as const)

describe('every operation', () => {
  test.each(operations)('%s answers a request of the contract with its example', async (_id, operation) => {
    const answer = await send(validRequest(operation))
    expect(answer.status).toBe(200)
    expect(examplesOf(operation, 200)).toContainEqual(answer.body)
    expect(answer.headers['idempotent-replayed']).toBeUndefined()
  })

  test.each(operations)('%s refuses a request outside the contract and says why', async (_id, operation) => {
    const valid = validRequest(operation)
    const query = parametersOf(operation).find((parameter) => parameter.required && parameter.in === 'query')
    if (query) {
      const { status, body } = await send({ ...valid, path: valid.path.split('?')[0]! })
      expect({ status, code: body.error.code }).toEqual({ status: 400, code: 'invalid_request' })
      expect(body.error.fields).toContainEqual({ field: query.name, message: 'is required' })
    } else if ((operation as RequestSide).requestBody?.required) {
      const { status, body } = await send({ ...valid, body: {} })
      expect({ status, code: body.error.code }).toEqual({ status: 400, code: 'invalid_request' })
      expect(body.error.fields).toContainEqual(expect.objectContaining({ message: 'is required' }))
    }
    if (!operation.needsToken) return
    const { status, body } = await send({ ...valid, headers: { 'content-type': 'application/json' } })
    expect({ status, code: body.error.code }).toEqual({ status: 401, code: 'invalid_access_token' })
  })
})

describe('as in the service,', () => {
  const labs = validRequest(operationOf('listLabs'))
  const reports = validRequest(operationOf('listPatientReports'))
  const entry = validRequest(operationOf('createEntry'))

  test.each(['Basic abc', 'x', 'Token t', 'Bearer', ''])('%j is no access token', async (authorization) => {
    const answer = await send({ ...labs, headers: { authorization } })
    expect(answer).toMatchObject({ status: 401, body: { error: { code: 'invalid_access_token' } } })
  })

  test('the scheme of a token is taken in small letters, and another one is none', async () => {
    const headers = { authorization: 'bearer any', 'patient-authorization': 'BEARER any' }
    expect(await send({ ...labs, headers })).toMatchObject({ status: 200 })
    expect(await send({ ...reports, headers })).toMatchObject({ status: 200 })
    const answer = await send({ ...reports, headers: { ...headers, 'patient-authorization': 'Basic any' } })
    expect(answer).toMatchObject({ status: 401, body: { error: { code: 'invalid_patient_token' } } })
  })

  test.each([19.99, 1.15, 0.29, 8.2, 4.35, 9999999999.99])('%d is an amount', async (totalAmount) => {
    expect(await send({ ...entry, body: { ...entry.body, totalAmount } })).toMatchObject({ status: 200 })
  })

  test.each([
    [{ totalAmount: 1.005 }, 'totalAmount must have at most two decimals'],
    [{ age: -1 }, 'age must be at least 0'],
    [{ phase: 'lad' }, 'phase must be one of lead, booking'],
  ])('%j is refused in its words', async (fault, details) => {
    const answer = await send({ ...entry, body: { ...entry.body, ...fault } })
    expect(answer).toMatchObject({ status: 400, body: { error: { code: 'invalid_request', details } } })
  })

  const wire = async (method: string, path: string, headers: Record<string, string>, body?: string) => {
    const sent = {
      method,
      headers: { authorization: 'Bearer any', ...headers },
      ...(body === undefined ? {} : { body }),
    }
    const response = await fetch(`${baseUrl}${path}`, sent)
    const answer = {
      status: response.status,
      headers: Object.fromEntries(response.headers),
      body: await response.json(),
    }
    contract.check(method, path.split('?')[0]!, answer)
    return answer
  }
  const create = '/client/crm/lead/create'
  const json = { 'content-type': 'application/json' }
  const text = JSON.stringify(entry.body)
  const deep = '['.repeat(20_000) + ']'.repeat(20_000)
  const webhookId = String(
    parametersOf(operationOf('deleteWebhook')).find(({ in: place }) => place === 'path')!.example,
  )

  test.each<[string, number, string, string, Record<string, string>, string?]>([
    ['a malformed % in an id, which may be any', 200, 'DELETE', '/client/events/deleteEvent/%zz?labID=any', {}],
    ['another charset', 415, 'POST', create, { 'content-type': 'application/json; charset=utf-16' }, text],
    ['an unknown charset', 415, 'POST', create, { 'content-type': 'application/json; charset=foo' }, text],
    ['a type that JSON is only a part of', 415, 'POST', create, { 'content-type': 'application/vnd.api+json' }, text],
    ['a body without end', 400, 'POST', create, json, `{"x": ${deep}}`],
    ['a body that is no object', 400, 'POST', `/client/events/rotateSecret/${webhookId}`, json, 'null'],
    ['an empty key', 400, 'POST', create, { ...json, 'idempotency-key': '' }, text],
    ['both parties', 400, 'GET', '/client/crm/tests?branchID=any&corporateUser=a&organization=b', {}],
    ['an empty party', 400, 'GET', '/client/crm/tests?branchID=any&corporateUser=', {}],
    ['a limit that is no number', 400, 'GET', '/client/events/deliveries?labID=any&limit=1e1', {}],
    ['an empty limit', 400, 'GET', '/client/events/deliveries?labID=any&limit=', {}],
    ['a body where none is asked for', 200, 'DELETE', `/client/events/deleteEvent/${webhookId}?labID=any`, json, '{}'],
    ['a byte order mark', 200, 'POST', create, json, `\ufeff${text}`],
    ['another language than JSON asked for', 200, 'GET', '/client/labs', { accept: 'text/html' }],
  ])('%s: %d', async (_what, status, method, path, headers, body) => {
    expect((await wire(method, path, headers, body)).status).toBe(status)
    // And the mock goes on.
    expect((await wire('GET', '/client/labs', {})).status).toBe(200)
  })
})

test.each(['code=abc', 'code=499', 'example=%zz', 'example=nothing', '=', 'x'.repeat(5000)])(
  'Prefer: %s',
  async (prefer) => {
    const headers = { authorization: 'Bearer any', prefer }
    const { status } = await fetch(`${baseUrl}/client/labs`, { headers })
    expect([200, 400]).toContain(status)
    expect(await send({ ...validRequest(operationOf('listLabs')) })).toMatchObject({ status: 200 })
  },
)

test.each([
  ['a head larger than Node takes by itself', 200, `X-Large: ${'y'.repeat(20_000)}\r\n`, 'Host: x\r\n'],
  ['a head too large', 431, `X-Large: ${'y'.repeat(140_000)}\r\n`, 'Host: x\r\n'],
  ['no Host', 400, '', ''],
  ['two lengths', 400, 'Content-Length: 1\r\nContent-Length: 2\r\n', 'Host: x\r\n'],
])('below HTTP it answers as the service does: %s', async (_what, status, headers, host) => {
  const head = `GET /client/labs HTTP/1.1\r\n${host}Authorization: Bearer any\r\nConnection: close\r\n${headers}\r\n`
  const answer = await sendRaw(Number(new URL(baseUrl).port), head)
  expect(answer).toMatch(new RegExp(`^HTTP/1.1 ${status} `))
  if (status >= 400) expect(answer).toContain('"success":false')
})

test('nothing is said to browsers of other sites, as by the service', async () => {
  const headers = { authorization: 'Bearer any', origin: 'https://app.example.in' }
  const answer = await fetch(`${baseUrl}/client/labs`, { headers })
  expect([...answer.headers.keys()].filter((name) => name.startsWith('access-control'))).toEqual([])
})

test('answers have the headers of the service', async () => {
  const ask = () => fetch(`${baseUrl}/client/labs`, { headers: { authorization: 'Bearer any' } })
  const [first, second] = [await ask(), await ask()]
  expect(Object.fromEntries(first.headers)).toMatchObject({
    'content-type': 'application/json; charset=utf-8',
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
  })
  expect(first.headers.get('x-request-id')).not.toBe(second.headers.get('x-request-id'))
})

describe('a subscribe', () => {
  const subscribe = operationOf('subscribeWebhook')
  const allEvents = Object.keys(contract.document.webhooks as object)

  test('brings one signed sample of each of its events to a real HTTPS endpoint', async () => {
    const receiver = await startHttpsReceiver(tls)
    try {
      const request = validRequest(subscribe)
      const events = allEvents.filter((event) =>
        Object.keys((subscribe as object as { callbacks: object }).callbacks).includes(event),
      )
      expect(events.length).toBeGreaterThanOrEqual(17)
      const endpoint = `${receiver.url}/events`
      const { body } = await send({ ...request, body: { ...request.body, events, endpoint } })
      const arrived = await receiver.arrived(events.length)
      expect(arrived.map(({ body }) => JSON.parse(body.toString()).type)).toEqual(events)
      for (const { path, headers, body: bytes } of arrived) {
        expect(path).toBe('/events')
        const event = new Webhook(body.data.secret).verify(bytes, headers as Record<string, string>) as { id: string }
        expect(headers['webhook-id']).toBe(event.id)
        const { type } = JSON.parse(bytes.toString())
        contract.checkSchema(`#/webhooks/${type}/post/requestBody/content/application~1json/schema`, event)
      }
    } finally {
      await receiver.close()
    }
  })

  test('with an endpoint that nobody serves is answered all the same', async () => {
    const request = validRequest(subscribe)
    const { status } = await send({ ...request, body: { ...request.body, endpoint: 'https://127.0.0.1:1/events' } })
    expect(status).toBe(200)
  })
})

describe('what Prism alone would get wrong', () => {
  test('malformed JSON, a path and a method outside the contract are refused in its shape, and the mock goes on', async () => {
    const malformed = await fetch(`${baseUrl}/client/auth/token`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-request-id': 'mine' },
      body: '{',
    })
    expect(malformed.status).toBe(400)
    expect(malformed.headers.get('x-request-id')).toBe('mine')
    expect(await malformed.json()).toMatchObject({ error: { code: 'malformed_json' }, requestId: 'mine' })
    const headers = { authorization: 'Bearer any' }
    expect(await send({ path: '/nowhere', method: 'GET', headers })).toMatchObject({ status: 404 })
    expect(await send({ path: '/client/labs', method: 'PUT', headers })).toMatchObject({ status: 405 })
  })

  test('a body over 256 KB is refused', async () => {
    const token = operationOf('issueToken')
    const answer = await send({ ...validRequest(token), body: { clientID: 'x'.repeat(300_000) } })
    expect(answer.status).toBe(413)
  })

  test('Prefer chooses another documented answer', async () => {
    const entry = validRequest(operationOf('createEntry'))
    const answer = await send({ ...entry, headers: { ...entry.headers, prefer: 'code=409' } })
    expect(answer).toMatchObject({ status: 409, body: { error: { code: 'duplicate_entry' } } })
    const { headers, body } = await send({
      ...entry,
      headers: { ...entry.headers, prefer: 'code=409', 'x-request-id': 'mine' },
    })
    expect([headers['x-request-id'], body.requestId]).toEqual(['mine', 'mine'])
  })
})
