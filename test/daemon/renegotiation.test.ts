/** TLS 1.2 lets an endpoint begin the handshake anew: one that does so gets no further requests by it. */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import tls, { createServer, type Server, type TLSSocket } from 'node:tls'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createWebhookClient, type WebhookClient } from '../../daemon/webhook-client.ts'
import { createAddressPolicy } from '../../src/webhooks/endpoint-address.ts'
import { createTestTls } from '../support/tls.ts'

const BODY = '{"a":1}'
const TRIES = 5

let own: Awaited<ReturnType<typeof createTestTls>>
let server: Server
let client: WebhookClient
let received: string
let renegotiated: number

beforeAll(async () => {
  own = await createTestTls()
  // Node's own servers refuse what this one provokes.
  Object.assign(tls, { CLIENT_RENEG_LIMIT: Infinity })
  const certificate = { cert: readFileSync(own.certificateFile), key: readFileSync(own.keyFile) }
  server = createServer({ ...certificate, maxVersion: 'TLSv1.2' }, beginAnew).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const policy = createAddressPolicy({ allow: ['127.0.0.0/8'] })
  client = createWebhookClient({ policy, caFiles: [own.caFile] }, 5000)
})
afterAll(async () => {
  await client.close()
  server.close()
  own.remove()
})

/** Asks for handshakes once it has the request, and answers then, if it can. */
function beginAnew(socket: TLSSocket): void {
  received = ''
  renegotiated = 0
  let asked = 0
  socket.on('data', (data) => {
    received += String(data)
    if (asked === 0) ask()
  })
  socket.on('error', () => {})
  const ask = () => {
    if (socket.destroyed) return
    if (asked++ === TRIES) return socket.end('HTTP/1.1 204 No Content\r\n\r\n')
    socket.renegotiate({}, (error) => {
      if (!error) renegotiated++
    })
    setTimeout(ask, 50)
  }
}

test('an endpoint that asks for another handshake gets none, and its request once', async () => {
  const endpoint = `https://127.0.0.1:${(server.address() as AddressInfo).port}/`
  const outcome = await client.post({ accountId: 'any', endpoint, headers: {}, body: Buffer.from(BODY) })
  expect(received.split(BODY)).toHaveLength(2)
  expect(renegotiated).toBe(0)
  // Its library takes the refusal for the end of the connection.
  expect(outcome).toMatchObject({ ok: false, class: 'tls' })
})
