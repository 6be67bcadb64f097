import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer, type RequestListener, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import { createSmsGateway } from '../../src/patients/sms-gateway.ts'

const sms = { id: '01m6das2k6480cxqeq0dq53y06', to: '9876543210', text: '123456 is your login code.' }
const now = () => new Date('2026-11-20T10:15:00.000Z')
const servers: Server[] = []
const folders: string[] = []

afterEach(() => {
  for (const server of servers.splice(0)) server.closeAllConnections()
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true })
})

async function gatewayThat(answers: RequestListener, deadlineMs = 5000) {
  const server = createServer(answers)
  servers.push(server)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  server.unref()
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/sms`
  return createSmsGateway({ url, dataDir: '/nowhere', now, deadlineMs })
}

test('a gateway gets the message as JSON, with the same Idempotency-Key on every try', async () => {
  const seen: unknown[] = []
  const gateway = await gatewayThat((req, res) => {
    let body = ''
    req.on('data', (chunk) => (body += chunk))
    req.on('end', () => {
      seen.push([req.method, req.url, req.headers['content-type'], req.headers['idempotency-key'], JSON.parse(body)])
      res.writeHead(202).end('{"ok":true}')
    })
  })
  await gateway.send(sms)
  await gateway.send(sms)
  const expected = ['POST', '/sms', 'application/json', sms.id, { to: sms.to, text: sms.text }]
  expect(seen).toEqual([expected, expected])
})

describe('a message is not taken', () => {
  test.each([
    ['by a gateway that answers 500', 'HTTP_500', (_, res) => res.writeHead(500).end(sms.text)],
    ['by one that redirects', 'HTTP_302', (_, res) => res.writeHead(302, { location: '/elsewhere' }).end()],
    ['by one that never answers', 'ETIMEDOUT', () => {}],
    ['by one that closes the connection', 'ECONNRESET', (req) => req.socket.destroy()],
    ['by one that drips headers', 'ETIMEDOUT', (req) => {
      req.socket.write('HTTP/1.1 200 OK\r\n')
      const drip = setInterval(() => req.socket.write('x: y\r\n'), 20)
      req.socket.on('close', () => clearInterval(drip))
    }],
    ['by one that changes the protocol', 'ECONNRESET', (req) => {
      req.socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n')
    }],
  ] as [string, string, RequestListener][])('%s, and its fault says nothing of it', async (_, code, answers) => {
    const gateway = await gatewayThat(answers, 200)
    const fault = await gateway.send(sms).then(() => undefined, (error: Error & { code?: string }) => error)
    expect(fault?.code).toBe(code)
    expect(`${fault!.message}${fault!.stack}`).not.toContain(sms.to)
  }) // prettier-ignore
})

test('an answer without an end is cut after 16 KB', async () => {
  let closed: () => void
  const cut = new Promise<void>((resolve) => (closed = resolve))
  const gateway = await gatewayThat((req, res) => {
    res.writeHead(200)
    const flood = () => {
      while (!res.destroyed && res.write('x'.repeat(8192)));
    }
    res.on('drain', flood)
    req.socket.on('close', closed)
    flood()
  })
  await gateway.send(sms)
  await cut
})

test('without a gateway the message is a line in a file that only its owner reads', async () => {
  const dataDir = mkdtempSync(join(tmpdir(), 'lis-sms-'))
  folders.push(dataDir)
  const gateway = createSmsGateway({ url: undefined, dataDir, now })
  await gateway.send(sms)
  await gateway.send(sms)
  const lines = readFileSync(join(dataDir, 'outbox', 'sms.ndjson'), 'utf8')
    .trim()
    .split('\n')
  const line = { at: '2026-11-20T10:15:00.000Z', to: sms.to, text: sms.text }
  expect(lines.map((text) => JSON.parse(text))).toEqual([line, line])
})
