import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import type { Lab } from '../src/catalogue/labs-repository.ts'
import { hashValue } from '../src/crypto.ts'
import { newId } from '../src/ids.ts'
import { client, operator, startTestApp, type TestApp } from './support/app.ts'
import { sendRaw } from './support/send-raw.ts'
import { buildAccount, buildLab, buildOperatorKey, leadBody, type TestAccount } from './support/builders.ts'
import type { ContractOperation } from './support/contract-checker.ts'

const LEAD_CREATE = '/client/crm/lead/create'

let app: TestApp
let account: TestAccount
let lab: Lab

beforeAll(async () => {
  app = await startTestApp()
  account = await buildAccount(app)
  lab = await buildLab(app, account)
})
afterAll(() => app.close())

const pathOf = (operation: ContractOperation) => operation.path.replace(/\{[^}]+\}/g, '01m6das2k6480cxqeq0dq53y06')
const createLead = (options: Parameters<TestApp['call']>[2]) =>
  app.call('POST', LEAD_CREATE, { token: account.token, ...options })

describe('every operation of the contracts', () => {
  const operations = [...client.operations, ...operator.operations]

  test.each(operations)('$method $path is routed and asks for a token', async (operation) => {
    const answer = await app.call(operation.method, pathOf(operation))
    expect(answer.status).toBe(operation.needsToken ? 401 : 415)
  })

  test.each(operations)('$method $path answers other methods with 405 and the allowed one', async (operation) => {
    const path = pathOf(operation)
    const allowed = operations
      .filter((other) => other.path === operation.path)
      .map(({ method }) => method)
      .sort()
    for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND']) {
      if (allowed.includes(method)) continue
      const answer = await app.call(method, path, { token: account.token })
      expect(answer.status).toBe(405)
      expect(String(answer.headers.allow).split(', ').sort()).toEqual(allowed)
    }
    const post = await app.call('POST', '/livez')
    expect([post.status, post.headers.allow]).toEqual([405, 'GET, HEAD'])
  })

  test.each(operations.filter(({ needsToken }) => needsToken))(
    '$method $path refuses a token of the other contract',
    async (operation) => {
      const token = operation.path.startsWith('/client') ? await buildOperatorKey(app) : account.token
      expect((await app.call(operation.method, pathOf(operation), { token })).status).toBe(401)
    },
  )
})

describe('the order of refusals', () => {
  test.each([
    '/',
    '/client',
    '/client/',
    '/client/labs/',
    '/Client/labs',
    '//client/labs',
    '/client/%zz',
    '/client/l%61bs',
  ])('an unknown path is 404, with or without a token: %s', async (path) => {
    expect((await app.call('GET', path)).status).toBe(404)
    expect((await app.call('GET', path, { token: account.token })).status).toBe(404)
  })

  test('a missing token comes before everything that the body could be faulted for', async () => {
    const oversized = 'x'.repeat(300 * 1024)
    for (const [rawBody, contentType] of [
      ['{', 'application/json'],
      ['hello', 'text/plain'],
      [oversized, 'text/plain'],
    ]) {
      const answer = await app.call('POST', LEAD_CREATE, {
        rawBody: rawBody!,
        headers: { 'content-type': contentType! },
      })
      expect(answer.status).toBe(401)
    }
  })

  test('the content type comes before the size, the size before the content', async () => {
    const oversized = `{"a":${'[1,'.repeat(90_000)}`
    const plain = await createLead({ rawBody: oversized, headers: { 'content-type': 'text/plain' } })
    expect(plain.status).toBe(415)
    expect((await createLead({ rawBody: oversized })).status).toBe(413)
  })

  test('what the request alone shows comes before the lab, and the lab before ids that are looked up', async () => {
    const foreignLab = await buildLab(app, await buildAccount(app))
    const body = leadBody(foreignLab, { corporateUser: 'nobody' })
    expect((await createLead({ body: { ...body, phase: 'deal' } })).status).toBe(400)
    expect((await createLead({ body })).status).toBe(403)
    expect((await createLead({ body: { ...body, branchID: lab.id } })).status).toBe(400)
  })
})

describe('the query', () => {
  test('may hold what nobody knows, and access_token counts for nothing', async () => {
    const query = { access_token: account.token, unknown: 'x' }
    expect((await app.call('GET', '/client/labs', { query })).status).toBe(401)
    expect((await app.call('GET', '/client/labs', { query, token: account.token })).status).toBe(200)
  })

  test('is 400 when a field is sent twice or is empty', async () => {
    const { token } = account
    const twice = await app.call('GET', '/client/crm/tests', {
      token,
      search: `?branchID=${lab.id}&branchID=${lab.id}`,
    })
    expect([twice.status, twice.body.error.details]).toEqual([400, 'branchID must be there only once'])
    const empty = await app.call('GET', '/client/crm/tests', { token, query: { branchID: '' } })
    expect([empty.status, empty.body.error.details]).toEqual([400, 'branchID must not be empty'])
  })

  const isPaged = (operation: ContractOperation) =>
    ((operation as unknown as { parameters?: object[] }).parameters ?? []).some(
      (parameter) => '$ref' in parameter && parameter.$ref === '#/components/parameters/PageLimit',
    )

  test.each([...client.operations, ...operator.operations].filter(isPaged))(
    'of $method $path is 400 with a limit that is not written in decimal digits',
    async (operation) => {
      const token = operation.path.startsWith('/client') ? account.token : await buildOperatorKey(app)
      const needed = { labID: lab.id, webhookId: newId(0) }
      const get = (limit: string) => app.call('GET', pathOf(operation), { token, query: { ...needed, limit } })
      for (const limit of [
        '0x10',
        '0b1',
        '0o7',
        '1e1',
        '10.0',
        '.5e1',
        ' 10',
        '10 ',
        '+10',
        '1_0',
        '١',
        '',
        'Infinity',
        '-',
      ]) {
        const { status, body } = await get(limit)
        const fault = body.error.fields?.find(({ field }: { field: string }) => field === 'limit')
        expect([limit, status, fault?.message]).toEqual([limit, 400, 'must be a whole number'])
      }
      const outside = [await get('-1'), await get('101')].map(({ body }) => body.error.details)
      expect(outside).toEqual(['limit must be at least 1', 'limit must be at most 100'])
      expect((await get('10')).body.error?.fields).toBeUndefined()
    },
  )

  test('is 400 with a flag that is neither true nor false, and read where it is one', async () => {
    const token = await buildOperatorKey(app)
    const list = (active: string) =>
      app.call('GET', `/operator/accounts/${account.id}/labs`, { token, query: { active, limit: '010' } })
    for (const active of ['1', 'TRUE', ' true', '', 'null']) {
      const { status, body } = await list(active)
      expect([active, status, body.error.details]).toEqual([active, 400, 'active must be true or false'])
    }
    const counts = [await list('true'), await list('false')].map(({ body }) => body.labs.length)
    expect(counts).toEqual([1, 0])
  })
})

describe('every answer', () => {
  test('carries the request id that was sent, or one of its own when that can not be one', async () => {
    const own = await app.call('GET', '/client/labs', { headers: { 'x-request-id': 'ab.c-1_2' } })
    expect([own.headers['x-request-id'], own.body.requestId]).toEqual(['ab.c-1_2', 'ab.c-1_2'])
    for (const id of ['a b', 'x'.repeat(129), 'ü']) {
      const other = await app.call('GET', '/client/labs', { headers: { 'x-request-id': encodeURI(id) } })
      expect(other.headers['x-request-id']).toMatch(/^[0-9a-z]{26}$/)
    }
  })

  test('says nothing of what it is made with, and is not stored on the way', async () => {
    const { headers } = await app.call('GET', '/client/labs', { token: account.token })
    expect(headers).not.toHaveProperty('x-powered-by')
    expect(headers).not.toHaveProperty('etag')
    expect(headers['cache-control']).toBe('no-store')
  })

  test('leaves one log line with the route and the operation, and nothing that was sent', async () => {
    const canary = 'Canary7319'
    const headers = { 'x-request-id': 'log-line' }
    const body = leadBody(lab, { first_name: canary, email: `${canary}@example.in`, assignedTo: canary })
    await createLead({ body, headers })
    const lines = app.logs().filter((line) => line.requestId === 'log-line')
    expect(lines).toEqual([
      expect.objectContaining({
        event: 'request.completed',
        method: 'POST',
        route: LEAD_CREATE,
        operation: 'createEntry',
        status: 400,
        code: 'unknown_telecaller',
        accountId: account.id,
        durationMs: expect.any(Number),
      }),
    ])
    expect(JSON.stringify(app.logs())).not.toContain(canary)
  })

  test('that nobody waited for is logged without a status', async () => {
    const head = `POST ${LEAD_CREATE} HTTP/1.1\r\nHost: x\r\nX-Request-Id: gone\r\nAuthorization: Bearer ${account.token}\r\n`
    await sendRaw(
      app.port,
      `${head}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"a":\r\nzz\r\n`,
    )
    const line = await vi.waitUntil(() => app.logs().find(({ requestId }) => requestId === 'gone'))
    expect(line).toMatchObject({ operation: 'createEntry', state: 'aborted' })
    expect(line).not.toHaveProperty('status')
  })

  test('to what is no HTTP has the error shape, too', async () => {
    expect(await sendRaw(app.port, 'HELLO\r\n\r\n')).toMatch(/^HTTP\/1.1 400 [^]*"success":false[^]*invalid_http/)
    expect(await sendRaw(app.port, `GET / HTTP/1.1\r\nx: ${'y'.repeat(140_000)}\r\n\r\n`)).toMatch(
      /^HTTP\/1.1 431 [^]*"success":false/,
    )
    expect(await sendRaw(app.port, 'GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')).toMatch(
      /^HTTP\/1.1 404 /,
    )
  })
})

test('what is no HTTP behind a whole request is refused when that is answered, and not in its place', async () => {
  const body = JSON.stringify(leadBody(lab))
  const head = `POST ${LEAD_CREATE} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${account.token}\r\n`
  const call = `${head}Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
  const answers = await sendRaw(app.port, `${call}HELLO\r\n\r\n`)
  expect(answers.match(/^HTTP\/1.1 \d+|(?<=\})HTTP\/1.1 \d+/gm)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 400'])
  expect(answers).toMatch(/"leadId":[^]*invalid_http/)
})

describe('health', () => {
  test('/livez is 200 and /readyz 503 with the reason while the service is not ready', async () => {
    expect((await app.call('GET', '/readyz')).status).toBe(200)
    app.readiness.fault = 'the database does not answer'
    const { status, headers, body } = await app.call('GET', '/readyz')
    expect([status, body.error.details]).toEqual([503, 'the database does not answer'])
    expect(headers['retry-after']).toBe('1')
    expect((await app.call('GET', '/livez')).status).toBe(200)
    // As a load balancer may ask.
    for (const [path, status] of [
      ['/livez', 200],
      ['/readyz', 503],
    ] as const) {
      const head = await app.call('HEAD', path)
      expect([head.status, head.body]).toEqual([status, undefined])
    }
    app.readiness.fault = undefined
  })
})

describe('listeners of their own', () => {
  test('with the operator elsewhere, /operator is 404 here and /client is 404 there', async () => {
    const publicApp = await startTestApp({ serves: { client: true, operator: false } })
    const operatorApp = await startTestApp({ serves: { client: false, operator: true } })
    expect((await publicApp.call('GET', '/operator/accounts')).status).toBe(404)
    expect((await publicApp.call('GET', '/client/labs')).status).toBe(401)
    expect((await operatorApp.call('GET', '/operator/accounts')).status).toBe(401)
    expect((await operatorApp.call('GET', '/client/labs')).status).toBe(404)
    await Promise.all([publicApp.close(), operatorApp.close()])
  })
})

describe('our own faults', () => {
  test('are 500 without a word of their cause, and logged as an error', async () => {
    const broken = await startTestApp()
    const { token } = await buildAccount(broken)
    await broken.database.knex.raw('DROP TABLE labs')
    const answer = await broken.call('GET', '/client/labs', { token })
    expect([answer.status, answer.body.error.details]).toEqual([500, 'an unexpected error occurred'])
    const line = broken.logs().find(({ status }) => status === 500)
    expect(line).toMatchObject({ level: 50, errno: 1146, operation: 'listLabs' })
    expect(line!.stack).toContain('at ')
    await broken.close()
  })

  test('are 503 with Retry-After when the database can not be reached', async () => {
    const cutOff = await startTestApp({ mysqlUrl: 'mysql://root@localhost/x?socketPath=/nowhere.sock' })
    const { token } = await cutOff.accessTokens.issue(account.id)
    const answer = await cutOff.call('GET', '/client/labs', { token })
    expect([answer.status, answer.headers['retry-after']]).toEqual([503, '1'])
    await cutOff.close()
  })
})

describe('a database that is busy', () => {
  test('for too long makes the answer 503 with Retry-After, and nothing is stored, then or later', async () => {
    const body = leadBody(lab)
    const row = { account_id: account.id, day: '2026-11-20', kind: 'contact', entry_id: lab.id }
    const trx = await app.database.knex.transaction()
    await trx('entry_day_guards').insert({ ...row, value_hash: hashValue(String(body.contact)) })
    const answer = await createLead({ body })
    expect([answer.status, answer.headers['retry-after'], answer.body.error.code]).toEqual([503, '1', 'unavailable'])
    await trx.rollback()
    expect((await createLead({ body })).status).toBe(200)
  })
})
