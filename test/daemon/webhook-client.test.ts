import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { createWebhookClient, type WebhookClient } from '../../daemon/webhook-client.ts'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { startNameServer, type NameAnswer } from '../../scripts/security/name-server.ts'
import { monotonicMs } from '../../src/clock.ts'
import { createAddressPolicy } from '../../src/webhooks/endpoint-address.ts'
import { startRawServer, type RawServer } from '../support/raw-server.ts'
import { createTestTls } from '../support/tls.ts'

const DEADLINE_MS = 400

let tls: Awaited<ReturnType<typeof createTestTls>>
let client: WebhookClient
const open: { close(): Promise<void> }[] = []

beforeAll(async () => {
  tls = await createTestTls()
  client = createWebhookClient(
    { policy: createAddressPolicy({ allow: ['127.0.0.0/8'] }), caFiles: [tls.caFile] },
    DEADLINE_MS,
  )
})
afterEach(async () => {
  for (const server of open.splice(0)) await server.close()
})
afterAll(async () => {
  await client.close()
  tls.remove()
})

async function receiver(
  ...args: Parameters<typeof startHttpsReceiver> extends [unknown, ...infer Rest] ? Rest : never
): Promise<HttpsReceiver> {
  const started = await startHttpsReceiver(tls, ...args)
  open.push(started)
  return started
}

async function rawServer(onRequest: Parameters<typeof startRawServer>[1], secure = true): Promise<RawServer> {
  const started = await startRawServer(secure ? tls : undefined, onRequest)
  open.push(started)
  return started
}

const post = (endpoint: string, using = client) =>
  using.post({
    accountId: 'any',
    endpoint,
    headers: { 'content-type': 'application/json', 'webhook-id': 'evt_1' },
    body: Buffer.from('{"a":1}'),
  })
const postTo = (server: { port: number }) => post(`https://127.0.0.1:${server.port}/`)

describe('an attempt', () => {
  test('posts the exact bytes and headers to the path with its query', async () => {
    const server = await receiver()
    const outcome = await post(`${server.url}/hooks?tenant=7`)
    expect(outcome).toMatchObject({ ok: true, class: 'ok', status: 204, error: null })
    expect(server.requests[0]).toMatchObject({ path: '/hooks?tenant=7', body: Buffer.from('{"a":1}') })
    expect(server.requests[0]!.headers).toMatchObject({ 'webhook-id': 'evt_1', 'content-length': '7' })
  })

  test.each([200, 201, 202, 204, 299])('succeeds with status %i', async (status) => {
    const server = await receiver(() => ({ status }))
    expect(await postTo(server)).toMatchObject({ ok: true, class: 'ok', status })
  })

  test.each([300, 304, 400, 404, 410, 429, 500, 503])('fails with status %i', async (status) => {
    const server = await receiver(() => ({ status }))
    expect(await postTo(server)).toMatchObject({
      ok: false,
      class: 'http_status',
      status,
      error: `HTTP status ${status}`,
    })
  })

  test.each([301, 302, 303, 307, 308])('a redirect %i is a failure and is not followed', async (status) => {
    const target = await receiver()
    const server = await receiver(() => ({ status, headers: { location: `${target.url}/` } }))
    expect(await postTo(server)).toMatchObject({ ok: false, class: 'http_status', status })
    expect(target.requests).toHaveLength(0)
  })

  test('keeps at most 1 KB of the answer', async () => {
    const server = await receiver(() => ({ status: 200, body: 'x'.repeat(5000) }))
    expect((await postTo(server)).answer).toEqual(Buffer.alloc(1024, 'x'))
  })

  test('reports Retry-After', async () => {
    const server = await receiver(() => ({ status: 503, headers: { 'retry-after': '120' } }))
    expect((await postTo(server)).retryAfter).toBe('120')
  })
})

describe('a remote fault is a value', () => {
  test('no answer within the deadline is a timeout, and the connection is closed', async () => {
    const server = await rawServer(() => {})
    const startedAtMs = monotonicMs()
    expect(await postTo(server)).toMatchObject({ ok: false, class: 'timeout', status: null })
    expect(monotonicMs() - startedAtMs).toBeLessThan(DEADLINE_MS + 500)
    await expect.poll(() => server.sockets.size).toBe(0)
  })

  test('a head that drips past the deadline is a timeout', async () => {
    const server = await rawServer((socket) => {
      socket.write('HTTP/1.1 200 OK\r\n')
      const timer = setInterval(() => (socket.destroyed ? clearInterval(timer) : socket.write('x: y\r\n')), 50)
    })
    expect(await postTo(server)).toMatchObject({ ok: false, class: 'timeout' })
  })

  test('informational answers are no answer', async () => {
    const server = await rawServer((socket) => {
      const timer = setInterval(
        () => (socket.destroyed ? clearInterval(timer) : socket.write('HTTP/1.1 103 Early Hints\r\n\r\n')),
        20,
      )
    })
    expect(await postTo(server)).toMatchObject({ ok: false, class: 'timeout' })
  })

  test('a 2xx after informational answers is a success', async () => {
    const server = await rawServer((socket) => {
      socket.write('HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n')
    })
    expect(await postTo(server)).toMatchObject({ ok: true, status: 204 })
  })

  test('101 is a failure', async () => {
    const server = await rawServer((socket) => {
      socket.write('HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n')
    })
    expect(await postTo(server)).toMatchObject({ ok: false })
  })

  test('a 2xx whose body never ends is a success, and its connection is closed', async () => {
    const server = await rawServer((socket) => {
      socket.write('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n')
      const timer = setInterval(
        () => (socket.destroyed ? clearInterval(timer) : socket.write('400\r\n' + 'x'.repeat(1024) + '\r\n')),
        2,
      )
    })
    const outcome = await postTo(server)
    expect(outcome).toMatchObject({ ok: true, status: 200 })
    expect(outcome.answer).toHaveLength(1024)
    await expect.poll(() => server.sockets.size).toBe(0)
  })

  test.each([
    ['garbage', 'hello\r\n\r\n'],
    ['a status above 999', 'HTTP/1.1 1000 OK\r\n\r\n'],
    ['a head of 64 KB', `HTTP/1.1 200 OK\r\nx: ${'y'.repeat(65_536)}\r\n\r\n`],
    ['both a length and chunks', 'HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n'],
  ])('%s is a fault of the protocol', async (_name, bytes) => {
    const server = await rawServer((socket) => socket.write(bytes))
    expect(await postTo(server)).toMatchObject({ ok: false, class: 'protocol' })
  })

  test('a connection that is closed before an answer is a reset', async () => {
    const server = await rawServer((socket) => socket.end())
    expect(await postTo(server)).toMatchObject({ ok: false, class: 'reset' })
    expect(server.connections).toBe(1)
  })

  test('a port that nobody listens on is refused', async () => {
    const server = await rawServer(() => {})
    await server.close()
    expect(await postTo(server)).toMatchObject({ ok: false, class: 'refused' })
  })

  test('plain HTTP behind an https URL is a fault of TLS', async () => {
    const server = await startRawServer(
      undefined,
      () => {},
      (socket) => {
        socket.once('data', () => socket.write('HTTP/1.1 400 Bad Request\r\n\r\n'))
      },
    )
    open.push(server)
    expect(await postTo(server)).toMatchObject({ ok: false, class: 'tls' })
  })

  test('a certificate of an unknown authority is refused before any HTTP is sent', async () => {
    const stranger = createWebhookClient(
      { policy: createAddressPolicy({ allow: ['127.0.0.0/8'] }), caFiles: [] },
      DEADLINE_MS,
    )
    const server = await receiver()
    expect(await post(`${server.url}/`, stranger)).toMatchObject({ ok: false, class: 'tls' })
    expect(server.requests).toHaveLength(0)
    await stranger.close()
  })

  test('a certificate for another name is refused', async () => {
    const server = await receiver()
    expect(await post(`https://partner.localhost:${server.port}/`)).toMatchObject({ ok: false, class: 'tls' })
    expect(server.requests).toHaveLength(0)
  })

  test('a literal address that is not opened is never connected to', async () => {
    const guarded = createWebhookClient({ policy: createAddressPolicy(), caFiles: [tls.caFile] }, DEADLINE_MS)
    const server = await rawServer(() => {})
    expect(await post(`https://127.0.0.1:${server.port}/`, guarded)).toMatchObject({ class: 'address_refused' })
    expect(await post(`https://localhost:${server.port}/`, guarded)).toMatchObject({ class: 'address_refused' })
    expect(server.connections).toBe(0)
    await guarded.close()
  })

  test('a name server that is silent costs no more than the deadline', async () => {
    const lost = createWebhookClient(
      { policy: createAddressPolicy(), caFiles: [], dnsServers: ['127.0.0.1:9'] },
      DEADLINE_MS,
    )
    const outcome = await post('https://partner.example.com/', lost)
    expect(outcome.ok).toBe(false)
    expect(['dns', 'timeout']).toContain(outcome.class)
    expect(outcome.durationMs).toBeLessThan(DEADLINE_MS + 500)
    await lost.close()
  })
})

describe('a name', () => {
  test.each([
    ['that nobody has', undefined],
    ['without an address', {}],
    ['that is an alias of localhost and no more', { cname: 'localhost' }],
    ['that is an alias of itself', { cname: 'partner.example.com' }],
    ['that its server can’t tell', { fault: 'server_failure' as const }],
    ['whose answer is cut short', { fault: 'truncated' as const, addresses: ['127.0.0.1'] }],
  ])('%s is a fault of the name look-up', async (_, answer) => {
    const nameServer = await startNameServer(() => answer)
    const asking = createWebhookClient(
      { policy: createAddressPolicy({ allow: ['127.0.0.0/8'] }), caFiles: [], dnsServers: [nameServer.address] },
      DEADLINE_MS,
    )
    expect(await post('https://partner.example.com/', asking)).toMatchObject({ ok: false, class: 'dns', status: null })
    await asking.close()
    nameServer.close()
  })
})

test.each([
  ['late', { addresses: ['127.0.0.1'], delayMs: 500 }, 4000, 'tls'],
  ['after the deadline', { addresses: ['127.0.0.1'], delayMs: 2000 }, 400, 'timeout'],
  ['with a hundred addresses', { addresses: Array.from({ length: 100 }, (_, n) => `127.0.0.${n + 1}`) }, 4000, 'tls'],
  ['with a private one among a hundred', { addresses: [...Array.from({ length: 99 }, (_, n) => `127.0.0.${n + 1}`), '10.0.0.1'] }, 4000, 'address_refused'], // prettier-ignore
] as const)('a name that is answered %s', async (_, answer, deadlineMs, expected) => {
  const server = await receiver()
  const nameServer = await startNameServer((__, family) => (family === 4 ? { ...answer, addresses: [...answer.addresses] } : {})) // prettier-ignore
  const policy = createAddressPolicy({ allow: ['127.0.0.0/8'] })
  const asking = createWebhookClient({ policy, caFiles: [tls.caFile], dnsServers: [nameServer.address] }, deadlineMs)
  // Where it is connected to, the receiver's certificate is for another name: the fault of TLS tells that it was.
  const outcome = await post(`https://partner.example.com:${server.port}/`, asking)
  expect(outcome).toMatchObject({ ok: false, class: expected })
  expect(outcome.durationMs).toBeLessThan(deadlineMs + 500)
  await asking.close()
  nameServer.close()
})

describe.each([1, 2])('with %i name servers that answer about one family alone', (count) => {
  const SILENT = { silent: true }

  async function asked(answerOf: (family: 4 | 6) => NameAnswer) {
    const server = await rawServer(() => {})
    const nameServers = await Promise.all(Array.from({ length: count }, () => startNameServer((_, family) => answerOf(family)))) // prettier-ignore
    const policy = createAddressPolicy({ allow: ['127.0.0.0/8'] })
    const dnsServers = nameServers.map(({ address }) => address)
    const asking = createWebhookClient({ policy, caFiles: [tls.caFile], dnsServers }, 5000)
    const outcome = await post(`https://partner.example.com:${server.port}/`, asking)
    await asking.close()
    for (const nameServer of nameServers) nameServer.close()
    return outcome
  }

  test('an endpoint is reached at the addresses that are known', async () => {
    const outcome = await asked((family) => (family === 4 ? { addresses: ['127.0.0.1'] } : SILENT))
    // The receiver's certificate is for another name: the fault of TLS tells that it was connected to.
    expect(outcome).toMatchObject({ ok: false, class: 'tls' })
    expect(outcome.durationMs).toBeLessThan(3000)
  })

  test('one of which may not be called is refused', async () => {
    const outcome = await asked((family) => (family === 4 ? { addresses: ['127.0.0.1', '10.0.0.1'] } : SILENT))
    expect(outcome).toMatchObject({ ok: false, class: 'address_refused' })
  })

  test('an answer that comes a little later counts, whatever it is', async () => {
    const outcome = await asked((family) => (family === 4 ? { addresses: ['127.0.0.1'] } : { addresses: ['fd00::1'], delayMs: 700 })) // prettier-ignore
    expect(outcome).toMatchObject({ ok: false, class: 'address_refused' })
  })
})

describe('a connection that is never established', () => {
  test('ends with its attempt, holds up no other, and is not tried again', async () => {
    const server = await rawServer(() => {}, false)
    const outcomes = await Promise.all([postTo(server), postTo(server), postTo(server)])
    expect(outcomes.map(({ class: kind }) => kind)).toEqual(['timeout', 'timeout', 'timeout'])
    expect(server.connections).toBe(3)
    await expect.poll(() => server.sockets.size, { timeout: 5000 }).toBe(0)
    await postTo(server)
    await expect.poll(() => server.sockets.size, { timeout: 5000 }).toBe(0)
    expect(server.connections).toBe(4)
  })
})

describe('a kept-alive connection', () => {
  test('carries many requests', async () => {
    const server = await rawServer((socket) => socket.write('HTTP/1.1 204 No Content\r\n\r\n'))
    for (let n = 0; n < 20; n++) expect((await postTo(server)).ok).toBe(true)
    expect(server.connections).toBe(1)
  })

  test('that dies as the next request goes out is replaced once by a fresh one', async () => {
    const server = await rawServer((socket, n) =>
      n === 1 ? socket.write('HTTP/1.1 204 No Content\r\n\r\n') : socket.destroy(),
    )
    expect((await postTo(server)).ok).toBe(true)
    expect((await postTo(server)).ok).toBe(true)
    expect(server.connections).toBe(2)
  })

  test('a fresh connection that dies is a failure, without a second try', async () => {
    const server = await rawServer((socket) => socket.destroy())
    expect(await postTo(server)).toMatchObject({ ok: false, class: 'reset' })
    expect(server.connections).toBe(1)
  })
})
