/** For how long an endpoint is believed to be who it was. */
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { createServer, type Server, type TLSSocket } from 'node:tls'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { createWebhookClient, type WebhookClient } from '../../daemon/webhook-client.ts'
import { monotonicMs, processClock } from '../../src/clock.ts'
import { createAddressPolicy } from '../../src/webhooks/endpoint-address.ts'
import { createTestTls } from '../support/tls.ts'

const MINUTE_MS = 60_000
const DAY_MS = 86_400_000

type TestTls = Awaited<ReturnType<typeof createTestTls>>

let trusted: TestTls
let other: TestTls
let server: Server
let client: WebhookClient
/** How far the client's clocks are ahead. */
let ahead: { monotonicMs: number; utcMs: number }
let resumed: boolean[]

/** Sessions outlive a change of certificate, as on servers that share their keys. */
const ticketKeys = randomBytes(48)
const contextOf = (tls: TestTls) => ({ cert: readFileSync(tls.certificateFile), key: readFileSync(tls.keyFile) })

beforeEach(async () => {
  trusted = await createTestTls()
  other = await createTestTls()
  resumed = []
  ahead = { monotonicMs: 0, utcMs: 0 }
  server = createServer({ ...contextOf(trusted), ticketKeys }, (socket: TLSSocket) => {
    resumed.push(socket.isSessionReused())
    socket.on('error', () => {})
    socket.on('data', () => socket.end('HTTP/1.1 204 No Content\r\n\r\n'))
  })
  server.on('tlsClientError', () => {})
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const sessionClocks = {
    monotonicMs: () => monotonicMs() + ahead.monotonicMs,
    utcMs: () => processClock.nowMs() + ahead.utcMs,
  }
  const policy = createAddressPolicy({ allow: ['127.0.0.0/8', '::1/128'] })
  client = createWebhookClient({ policy, caFiles: [trusted.caFile], sessionClocks }, 5000)
})
afterEach(async () => {
  await client.close()
  server.close()
  for (const tls of [trusted, other]) tls.remove()
})

async function post(host = '127.0.0.1') {
  const endpoint = `https://${host}:${(server.address() as AddressInfo).port}/`
  const outcome = await client.post({ accountId: 'any', endpoint, headers: {}, body: Buffer.from('{}') })
  // The end of the connection has been seen: the next request gets another.
  await expect.poll(() => new Promise((resolve) => server.getConnections((_, count) => resolve(count)))).toBe(0)
  return outcome
}

test('ten minutes after the last full handshake comes another, however often its session was taken up since', async () => {
  for (let n = 0; n < 5; n++) {
    expect((await post()).ok).toBe(true)
    ahead.monotonicMs += 4 * MINUTE_MS
  }
  expect(resumed).toEqual([false, true, true, false, true])
})

test('a session is taken up also where the first address of a name can not be reached', async () => {
  server.close()
  await once(server.listen(0, '::1'), 'listening')
  for (let n = 0; n < 2; n++) expect((await post('localhost')).ok).toBe(true)
  expect(resumed).toEqual([false, true])
})

test('a session ends with the certificate that it was made with', async () => {
  for (const days of [0, 3640, 3651]) {
    ahead.utcMs = days * DAY_MS
    expect((await post()).ok).toBe(true)
  }
  expect(resumed).toEqual([false, true, false])
})

test('an endpoint whose certificate is no longer trusted is refused when its session is over', async () => {
  expect((await post()).ok).toBe(true)
  server.setSecureContext(contextOf(other))
  server.setTicketKeys(ticketKeys)
  expect((await post()).ok).toBe(true)
  ahead.monotonicMs = 10 * MINUTE_MS
  for (let n = 0; n < 2; n++) expect(await post()).toMatchObject({ ok: false, class: 'tls', status: null })
})
