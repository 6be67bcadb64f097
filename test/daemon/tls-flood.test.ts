/**
 * What an endpoint can send inside TLS 1.3 beside its answer: new keys and session tickets. Some are taken; without end they would keep
 * the daemon from everybody else.
 */
import { constants, createCipheriv, createHmac } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import type { AddressInfo, Socket } from 'node:net'
import { createServer, type Server, type TLSSocket } from 'node:tls'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createWebhookClient, type WebhookClient } from '../../daemon/webhook-client.ts'
import { createAddressPolicy } from '../../src/webhooks/endpoint-address.ts'
import { createTestTls } from '../support/tls.ts'

const HANDSHAKE = 22
const APPLICATION_DATA = 23
/** After a full handshake Node's servers send two tickets with the keys that come out of it. */
const RECORDS_BEFORE = 2
const NO_CONTENT = Buffer.from('HTTP/1.1 204 No Content\r\n\r\n')

/** Writes the records of a server of TLS 1.3 (RFC 8446 5.2, 7.2, 7.3), with TLS_AES_256_GCM_SHA384. */
class ServerRecords {
  #secret: Buffer
  #sequence = RECORDS_BEFORE

  /** @param secret of the server's first application traffic */
  constructor(secret: Buffer) {
    this.#secret = secret
  }

  record(type: number, content: Buffer, padding = 0): Buffer {
    const plain = Buffer.concat([content, Buffer.from([type]), Buffer.alloc(padding)])
    const head = Buffer.from([APPLICATION_DATA, 3, 3, 0, 0])
    head.writeUInt16BE(plain.length + 16, 3)
    const nonce = expandLabel(this.#secret, 'iv', 12)
    nonce.writeUInt32BE((nonce.readUInt32BE(8) ^ this.#sequence++) >>> 0, 8)
    const cipher = createCipheriv('aes-256-gcm', expandLabel(this.#secret, 'key', 32), nonce).setAAD(head)
    return Buffer.concat([head, cipher.update(plain), cipher.final(), cipher.getAuthTag()])
  }

  keyUpdate(): Buffer {
    const record = this.record(HANDSHAKE, Buffer.from([24, 0, 0, 1, 0]))
    this.#secret = expandLabel(this.#secret, 'traffic upd', 48)
    this.#sequence = 0
    return record
  }

  ticket(): Buffer {
    const ticket = [0, 0, 14, 16, 0, 0, 0, 0, 1, 7, 0, 2, 5, 5, 0, 0]
    return this.record(HANDSHAKE, Buffer.from([4, 0, 0, ticket.length, ...ticket]))
  }
}

function expandLabel(secret: Buffer, label: string, length: number): Buffer {
  const name = Buffer.from(`tls13 ${label}`)
  const info = Buffer.concat([Buffer.from([length >> 8, length, name.length]), name, Buffer.from([0, 1])])
  return createHmac('sha384', secret).update(info).digest().subarray(0, length)
}

let own: Awaited<ReturnType<typeof createTestTls>>
let server: Server
let client: WebhookClient
let toClient: Socket
let records: ServerRecords
/** What the endpoint does when the request is there. */
let respond: () => void

beforeAll(async () => {
  own = await createTestTls()
  const certificate = { cert: readFileSync(own.certificateFile), key: readFileSync(own.keyFile) }
  // No session is taken up: that would be told of by one ticket.
  server = createServer({ ...certificate, secureOptions: constants.SSL_OP_NO_TICKET }, (socket: TLSSocket) => {
    socket.on('error', () => {})
    // What the handshake has left to say goes out before.
    socket.on('data', () => setImmediate(respond))
  })
  server.on('keylog', (line: Buffer) => {
    const [label, , secret] = String(line).trim().split(' ')
    if (label === 'SERVER_TRAFFIC_SECRET_0') records = new ServerRecords(Buffer.from(secret!, 'hex'))
  })
  // Below TLS, for what this test writes itself.
  server.on('connection', (socket: Socket) => (toClient = socket))
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const policy = createAddressPolicy({ allow: ['127.0.0.0/8'] })
  client = createWebhookClient({ policy, caFiles: [own.caFile] }, 5000)
})
afterAll(async () => {
  await client.close()
  server.close()
  own.remove()
})

const post = () => {
  const endpoint = `https://127.0.0.1:${(server.address() as AddressInfo).port}/`
  return client.post({ accountId: 'any', endpoint, headers: {}, body: Buffer.from('{}') })
}

const KINDS = [
  ['new keys', () => records.keyUpdate()],
  ['session tickets', () => records.ticket()],
] as const

test.each(KINDS)('%s that come before the answer are taken', async (_, next) => {
  respond = () => {
    toClient.write(Buffer.concat(Array.from({ length: 20 }, next)))
    toClient.write(records.record(APPLICATION_DATA, NO_CONTENT))
  }
  for (let n = 0; n < 5; n++) expect(await post()).toMatchObject({ ok: true, status: 204 })
})

test.each(KINDS)('an endpoint that floods its connection with %s is given up at once', async (_, next) => {
  respond = () => toClient.write(Buffer.concat(Array.from({ length: 100 }, next)))
  const ended = expect.poll(() => toClient.destroyed || toClient.readableEnded, { timeout: 2000 })
  expect(await post()).toMatchObject({ ok: false, class: 'tls', error: expect.stringContaining('(LIS_TLS_FLOOD)') })
  await ended.toBe(true)
})

test('an endpoint that says little in half a megabyte is given up soon', async () => {
  const drip = () => records.record(APPLICATION_DATA, Buffer.from('x'), 16_000)
  respond = () => {
    toClient.write(records.record(APPLICATION_DATA, Buffer.from('HTTP/1.1 200 OK\r\nx-name: ')))
    for (let n = 0; n < 40; n++) toClient.write(drip())
  }
  const outcome = await post()
  expect(outcome).toMatchObject({ ok: false, class: 'tls', error: expect.stringContaining('(LIS_TLS_FLOOD)') })
  expect(outcome.durationMs).toBeLessThan(2500)
})

test('so is one that floods it while nothing is asked of it', async () => {
  respond = () => toClient.write(records.record(APPLICATION_DATA, NO_CONTENT))
  expect(await post()).toMatchObject({ ok: true })
  const kept = toClient
  kept.write(Buffer.concat(Array.from({ length: 100 }, () => records.keyUpdate())))
  await expect.poll(() => kept.destroyed || kept.readableEnded, { timeout: 2000 }).toBe(true)
  expect(await post()).toMatchObject({ ok: true })
})
