import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer as createPlainServer, type AddressInfo, type Socket } from 'node:net'
import { createServer, type TLSSocket } from 'node:tls'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { createWebhookClient, type WebhookClient } from '../../daemon/webhook-client.ts'
import { createAddressPolicy } from '../../src/webhooks/endpoint-address.ts'
import { startLateListener } from '../support/late-listener.ts'
import { startRawServer } from '../support/raw-server.ts'
import { createTestTls } from '../support/tls.ts'

const NO_CONTENT = 'HTTP/1.1 204 No Content\r\n\r\n'

let tls: Awaited<ReturnType<typeof createTestTls>>
let client: WebhookClient

beforeAll(async () => {
  tls = await createTestTls()
})
beforeEach(() => {
  client = createWebhookClient(
    { policy: createAddressPolicy({ allow: ['127.0.0.0/8', '::1/128'] }), caFiles: [tls.caFile] },
    5000,
  )
})
afterEach(() => client.close())
afterAll(() => tls.remove())

const post = (host: string, port: number) =>
  client.post({ accountId: 'any', endpoint: `https://${host}:${port}/`, headers: {}, body: Buffer.from('{}') })

test('a certificate for another name is refused each time, whatever session there was before', async () => {
  const server = await startRawServer(tls, (socket) => socket.write(NO_CONTENT))
  for (let n = 0; n < 3; n++) {
    expect(await post('partner.localhost', server.port)).toMatchObject({ class: 'tls', status: null })
    expect((await post('127.0.0.1', server.port)).ok).toBe(true)
  }
  await server.close()
})

test('a new connection takes up the TLS session of the one before', async () => {
  const resumed: boolean[] = []
  const server = await startRawServer(
    tls,
    (socket) => socket.end(NO_CONTENT),
    (socket) => resumed.push((socket as TLSSocket).isSessionReused()),
  )
  for (let n = 0; n < 3; n++) {
    expect((await post('127.0.0.1', server.port)).ok).toBe(true)
    await expect.poll(() => server.sockets.size).toBe(0)
  }
  expect(resumed).toEqual([false, true, true])
  await server.close()
})

test('the name stays in SNI and Host; an address stands in Host alone', async () => {
  const seen: unknown[] = []
  const server = await startRawServer(
    tls,
    (socket) => socket.write(NO_CONTENT),
    (socket) =>
      socket.on('data', (data) => seen.push((socket as TLSSocket).servername, /host: (.*)\r/.exec(String(data))![1])),
  )
  await post('localhost', server.port)
  await post('127.0.0.1', server.port)
  expect(seen).toEqual(['localhost', `localhost:${server.port}`, false, `127.0.0.1:${server.port}`])
  await server.close()
})

test('a name with two addresses is reached at the one that answers, an IPv6 literal as it is', async () => {
  const server = createServer({ cert: readFileSync(tls.certificateFile), key: readFileSync(tls.keyFile) })
  server.on('secureConnection', (socket: Socket) => {
    socket.on('error', () => {})
    socket.on('data', () => socket.write('HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nsix'))
  })
  server.listen(0, '::1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  for (const host of ['localhost', 'localhost', '[::1]']) {
    expect(await post(host, port)).toMatchObject({ ok: true, answer: Buffer.from('six') })
  }
  server.close()
})

// Of the two addresses of `localhost` nobody listens on the second, as where a host has an AAAA and the machine no IPv6.
test.each(['127.0.0.1', 'localhost'])(
  'a server that accepts late has its time, whatever other address it has: %s',
  async (host) => {
    const server = await startRawServer(tls, (socket) => socket.write(NO_CONTENT))
    const listener = await startLateListener(server.port)
    const outcome = post(host, listener.port)
    setTimeout(() => listener.accept(), 400)
    expect(await outcome).toMatchObject({ ok: true, class: 'ok', status: 204 })
    await listener.close()
    await server.close()
  },
)

test('a TLS version below 1.2 is refused before any HTTP is sent', async () => {
  let heard = 0
  const server = createServer({
    cert: readFileSync(tls.certificateFile),
    key: readFileSync(tls.keyFile),
    minVersion: 'TLSv1',
    maxVersion: 'TLSv1.1',
    ciphers: 'ALL@SECLEVEL=0',
  })
  server.on('secureConnection', (socket: Socket) => socket.on('data', () => (heard += 1)))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const outcome = await post('127.0.0.1', (server.address() as AddressInfo).port)
  expect(outcome).toMatchObject({ ok: false, class: 'tls', status: null })
  expect(heard).toBe(0)
  server.close()
})

/** Those that a ClientHello offers (RFC 8446 4.1.2), by their numbers. */
function suitesOf(hello: Buffer): number[] {
  const at = 43 + 1 + hello[43]!
  return Array.from({ length: hello.readUInt16BE(at) / 2 }, (_, n) => hello.readUInt16BE(at + 2 + 2 * n))
}

test('no suite is offered in which a server of TLS 1.2 chooses how large the numbers are', async () => {
  let hello = Buffer.alloc(0)
  const server = createPlainServer((socket) => {
    socket.on('data', (data) => (hello = Buffer.concat([hello, data])))
    socket.on('data', () => hello.length >= 5 + hello.readUInt16BE(3) && socket.destroy())
    socket.on('error', () => {})
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  expect((await post('127.0.0.1', (server.address() as AddressInfo).port)).ok).toBe(false)
  server.close()
  const suites = suitesOf(hello)
  // TLS_AES_128_GCM_SHA256 and ECDHE-RSA-AES128-GCM-SHA256 are there.
  expect(suites).toEqual(expect.arrayContaining([0x1301, 0xc02f]))
  const DHE_RSA = [0x33, 0x39, 0x67, 0x6b, 0x9e, 0x9f, 0xccaa, 0xc09e, 0xc09f, 0xc0a2, 0xc0a3, 0xc052, 0xc053]
  expect(suites.filter((suite) => DHE_RSA.includes(suite))).toEqual([])
})
