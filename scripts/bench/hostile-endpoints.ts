/**
 * Endpoints that do whatever an endpoint should not, each on a port of its own, and a count of the connections they see.
 */
import { readFileSync } from 'node:fs'
import { once } from 'node:events'
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import { gzipSync } from 'node:zlib'
import { monotonicMs } from '../../src/clock.ts'
import type { DevTls } from '../dev-tls.ts'

type Answer = (socket: Socket) => void

interface Kind {
  /** What an attempt may be recorded as. */
  classes: string[]
  /** Called once for each request over TLS. */
  answer?: Answer
  /** Called instead of TLS for each connection. */
  accept?: Answer
  /** Nobody listens. */
  closed?: true
}

const write = (text: string | Buffer) => (socket: Socket) => void socket.write(text)
const end = (text: string) => (socket: Socket) => void socket.end(text)
/** Until the other side has had enough of it. */
const drip = (first: string, piece: string, everyMs: number) => (socket: Socket) => {
  socket.write(first)
  const timer = setInterval(() => (socket.destroyed ? clearInterval(timer) : socket.write(piece)), everyMs)
  socket.once('close', () => clearInterval(timer))
}
const chunked = 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n'
const status = (line: string): Kind['answer'] => write(`HTTP/1.1 ${line}\r\ncontent-length: 0\r\n\r\n`)
const bomb = gzipSync(Buffer.alloc(10_000_000))
const EARLY_HINTS = 'HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n'
const CHUNK = `4000\r\n${'x'.repeat(16_384)}\r\n`

export const KINDS: Record<string, Kind> = {
  'nobody listens': { classes: ['refused'], closed: true },
  'reset on accept': { classes: ['reset'], accept: (socket) => socket.resetAndDestroy() },
  'plain HTTP': { classes: ['tls'], accept: (socket) => socket.once('data', () => end('HTTP/1.1 200 OK\r\n\r\n')(socket)) },
  'TLS never comes': { classes: ['timeout'], accept: () => {} },
  'never answers': { classes: ['timeout'], answer: () => {} },
  'head drips': { classes: ['timeout'], answer: drip('HTTP/1.1 200 OK\r\n', 'x: y\r\n', 200) },
  'body drips': { classes: ['ok'], answer: drip('HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n', 'x', 100) },
  'chunks drip': { classes: ['ok'], answer: drip(chunked, '1\r\nx\r\n', 100) },
  'endless body': { classes: ['ok'], answer: drip(chunked, CHUNK, 1) },
  'head of 2 MB': { classes: ['protocol', 'reset'], answer: write(`HTTP/1.1 200 OK\r\nx: ${'y'.repeat(2_000_000)}\r\n\r\n`) },
  '5,000 header lines': { classes: ['protocol', 'reset'], answer: write(`HTTP/1.1 200 OK\r\n${'a: bcdefg\r\n'.repeat(5000)}\r\n`) },
  'reset in the body': { classes: ['ok'], answer: (socket) => { write(`${chunked}5\r\nhello\r\n`)(socket); setTimeout(() => socket.destroy(), 50) } },
  'end in the body': { classes: ['ok'], answer: end(`${chunked}5\r\nhello\r\n`) },
  '103 drips': { classes: ['timeout'], answer: drip('', EARLY_HINTS, 200) },
  '103 floods': { classes: ['timeout'], answer: drip('', EARLY_HINTS.repeat(500), 20) },
  '101': { classes: ['protocol', 'reset', 'unknown', 'http_status'], answer: write('HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n') },
  '1xx and then the end': { classes: ['reset'], answer: end(EARLY_HINTS) },
  '204': { classes: ['ok'], answer: write('HTTP/1.1 204 No Content\r\n\r\n') },
  '205': { classes: ['ok'], answer: status('205 Reset Content') },
  '299': { classes: ['ok'], answer: status('299 Odd') },
  '304': { classes: ['http_status'], answer: write('HTTP/1.1 304 Not Modified\r\n\r\n') },
  '307': { classes: ['http_status'], answer: write('HTTP/1.1 307 Temporary Redirect\r\nlocation: https://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n') },
  'status 1000': { classes: ['protocol'], answer: write('HTTP/1.1 1000 OK\r\n\r\n') },
  garbage: { classes: ['protocol'], answer: write('hello\r\n\r\n') },
  'both a length and chunks': { classes: ['protocol'], answer: write('HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n') },
  'gzip bomb': { classes: ['ok'], answer: (socket) => { socket.write(`HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: ${bomb.length}\r\n\r\n`); socket.write(bomb) } },
  'no answer but the end': { classes: ['reset'], answer: (socket) => void socket.end() },
} // prettier-ignore

export interface HostileEndpoint {
  kind: string
  port: number
  open: Set<Socket>
  /** The longest that a connection stayed open after its last request, in milliseconds. */
  longestOpenMs: number
  close(): void
}

export async function startHostileEndpoint(kind: string, tls: DevTls): Promise<HostileEndpoint> {
  const { answer, accept, closed } = KINDS[kind]!
  const open = new Set<Socket>()
  const endpoint: HostileEndpoint = { kind, port: 0, open, longestOpenMs: 0, close: () => server.close() }
  const server: Server = accept
    ? createServer(accept)
    : createTlsServer({ cert: readFileSync(tls.certificateFile), key: readFileSync(tls.keyFile) }, (socket) => {
        socket.on('error', () => {})
        let body = ''
        socket.on('data', (data) => {
          body += data.toString('latin1')
          const head = body.indexOf('\r\n\r\n')
          const length = Number(/content-length: (\d+)/i.exec(body.slice(0, head))?.[1] ?? 0)
          if (head < 0 || body.length < head + 4 + length) return
          body = ''
          requestAtMs.set(socket.remotePort!, monotonicMs())
          answer!(socket)
        })
      })
  const requestAtMs = new Map<number, number>()
  server.on('tlsClientError', () => {})
  server.on('connection', (socket: Socket) => {
    open.add(socket)
    const { remotePort } = socket
    requestAtMs.set(remotePort!, monotonicMs())
    socket.on('error', () => {})
    // Unread, it would not be seen to close.
    if (accept) socket.resume()
    socket.once('close', () => {
      open.delete(socket)
      endpoint.longestOpenMs = Math.max(endpoint.longestOpenMs, monotonicMs() - requestAtMs.get(remotePort!)!)
      requestAtMs.delete(remotePort!)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  endpoint.port = (server.address() as AddressInfo).port
  if (closed) {
    server.close()
    endpoint.close = () => {}
  }
  return endpoint
}
