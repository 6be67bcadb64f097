/**
 * Endpoints that do whatever an endpoint should not, each on a port of its own, and a count of the connections they see.
 */
import { readFileSync } from 'node:fs'
import { once } from 'node:events'
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import { gzipSync } from 'node:zlib'
import { monotonicMs } from '../../src/clock.ts'
import type { CertificateName, DevTls } from '../dev-tls.ts'
import type { NameAnswer } from '../security/name-server.ts'
import { startFullBacklog } from './full-backlog.ts'

/** @param raw the connection below TLS */
type Answer = (socket: Socket, raw: Socket) => void

interface Kind {
  /** What an attempt may be recorded as. */
  classes: string[]
  /** Called once for each request over TLS. */
  answer?: Answer
  /** Called instead of TLS for each connection. */
  accept?: Answer
  /** Nobody listens. */
  closed?: true
  /** Somebody listens, and nobody accepts: the line is full. */
  unaccepted?: true
  /** It is called by a name, and this is what the name server has to say of it; null: that nobody has that name. */
  name?: NameAnswer | null
}

const write = (text: string | Buffer) => (socket: Socket) => void socket.write(text)
const end = (text: string) => (socket: Socket) => void socket.end(text)
/** Until the other side has had enough of it. */
const drip = (first: string, piece: string, everyMs: number) => (socket: Socket) => {
  socket.write(first)
  const timer = setInterval(() => (socket.destroyed ? clearInterval(timer) : socket.write(piece)), everyMs)
  socket.once('close', () => clearInterval(timer))
}
const answered = write('HTTP/1.1 204 No Content\r\n\r\n')
const chunked = 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n'
const status = (line: string): Kind['answer'] => write(`HTTP/1.1 ${line}\r\ncontent-length: 0\r\n\r\n`)
const bomb = gzipSync(Buffer.alloc(10_000_000))
const EARLY_HINTS = 'HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n'
/** Reserved for examples (RFC 2606). */
const DOMAIN = 'hostile.example'
/** Its own name, in an answer. */
const ITSELF = ''
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
  // 55 KB, of 64 that are read.
  '5,000 header lines': { classes: ['ok'], answer: write(`HTTP/1.1 200 OK\r\n${'a: bcdefg\r\n'.repeat(5000)}\r\n`) },
  '10,000 header lines': { classes: ['protocol', 'reset'], answer: write(`HTTP/1.1 200 OK\r\n${'a: bcdefg\r\n'.repeat(10_000)}\r\n`) },
  'reset in the body': { classes: ['ok'], answer: (socket, raw) => { write(`${chunked}5\r\nhello\r\n`)(socket); setTimeout(() => raw.resetAndDestroy(), 50) } },
  'end in the body': { classes: ['ok'], answer: end(`${chunked}5\r\nhello\r\n`) },
  '103 drips': { classes: ['timeout'], answer: drip('', EARLY_HINTS, 200) },
  '103 floods': { classes: ['timeout'], answer: drip('', EARLY_HINTS.repeat(500), 20) },
  '101': { classes: ['protocol', 'reset', 'unknown', 'http_status'], answer: write('HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n') },
  '1xx and then the end': { classes: ['reset'], answer: end(EARLY_HINTS) },
  '204': { classes: ['ok'], answer: answered },
  '205': { classes: ['ok'], answer: status('205 Reset Content') },
  '299': { classes: ['ok'], answer: status('299 Odd') },
  '304': { classes: ['http_status'], answer: write('HTTP/1.1 304 Not Modified\r\n\r\n') },
  '307': { classes: ['http_status'], answer: write('HTTP/1.1 307 Temporary Redirect\r\nlocation: https://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n') },
  'status 1000': { classes: ['protocol'], answer: write('HTTP/1.1 1000 OK\r\n\r\n') },
  garbage: { classes: ['protocol'], answer: write('hello\r\n\r\n') },
  'both a length and chunks': { classes: ['protocol'], answer: write('HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n') },
  'gzip bomb': { classes: ['ok'], answer: (socket) => { socket.write(`HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: ${bomb.length}\r\n\r\n`); socket.write(bomb) } },
  'no answer but the end': { classes: ['reset'], answer: (socket) => void socket.end() },
  'SYN backlog full': { classes: ['timeout'], unaccepted: true },
  'a name that nobody has': { classes: ['dns'], name: null },
  'a name that its server can’t tell': { classes: ['dns'], name: { fault: 'server_failure' } },
  'a name server that is silent': { classes: ['dns', 'timeout'], name: { silent: true } },
  'a name after 3 s': { classes: ['ok'], answer: answered, name: { addresses: ['127.0.0.1'], delayMs: 3000 } },
  'an alias of itself': { classes: ['dns'], name: { cname: ITSELF } },
  'a hundred addresses, one of which answers': { classes: ['ok'], answer: answered, name: { addresses: [...Array.from({ length: 99 }, (_, n) => `127.0.1.${n + 1}`), '127.0.0.1'] } },
  'a name whose answer is cut short': { classes: ['dns'], name: { fault: 'truncated', addresses: ['127.0.0.1'] } },
} // prettier-ignore

/** What a certificate for all of them is good for. */
export const HOSTILE_NAMES: CertificateName = { type: 'dns', value: `*.${DOMAIN}` }

const hostOf = (kind: string) => `kind-${Object.keys(KINDS).indexOf(kind)}.${DOMAIN}`

/** What the name server has to say of that name; undefined: that nobody has it. */
export function hostileName(name: string): NameAnswer | undefined {
  const kind = Object.keys(KINDS).find((one) => hostOf(one) === name)
  const answer = (kind === undefined ? null : KINDS[kind]!.name) ?? undefined
  return answer?.cname === ITSELF ? { ...answer, cname: name } : answer
}

export interface HostileEndpoint {
  kind: string
  url: string
  /** Connections that are open now, or tried. */
  readonly open: number
  /** The longest that a connection stayed open after its last request, in milliseconds. */
  readonly longestOpenMs: number
  close(): void
}

export async function startHostileEndpoint(kind: string, tls: DevTls): Promise<HostileEndpoint> {
  const { closed, unaccepted, name } = KINDS[kind]!
  const host = name === undefined ? '127.0.0.1' : hostOf(kind)
  const urlOf = (port: number) => `https://${host}:${port}/`
  if (unaccepted) {
    const backlog = await startFullBacklog()
    return {
      kind,
      url: urlOf(backlog.port),
      get open() {
        return backlog.trying
      },
      get longestOpenMs() {
        return backlog.longestTriedMs
      },
      close: backlog.close,
    }
  }
  const connections = new Connections()
  const server = listener(KINDS[kind]!, tls, connections)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  if (closed) server.close()
  return {
    kind,
    url: urlOf(port),
    get open() {
      return connections.open.size
    },
    get longestOpenMs() {
      return connections.longestOpenMs
    },
    close: () => closed || server.close(),
  }
}

/** Those of one endpoint, by the other side's port. */
class Connections {
  readonly open = new Map<number, Socket>()
  longestOpenMs = 0
  readonly #requestAtMs = new Map<number, number>()

  add(socket: Socket): void {
    const port = socket.remotePort!
    this.open.set(port, socket)
    this.requested(port)
    socket.on('error', () => {})
    socket.once('close', () => {
      this.open.delete(port)
      this.longestOpenMs = Math.max(this.longestOpenMs, monotonicMs() - this.#requestAtMs.get(port)!)
      this.#requestAtMs.delete(port)
    })
  }

  requested(port: number): void {
    this.#requestAtMs.set(port, monotonicMs())
  }
}

function listener({ accept, answer = () => {} }: Kind, tls: DevTls, connections: Connections): Server {
  if (accept) {
    return createServer((socket) => {
      connections.add(socket)
      // Unread, it would not be seen to close.
      socket.resume()
      accept(socket, socket)
    })
  }
  const server = createTlsServer(
    { cert: readFileSync(tls.certificateFile), key: readFileSync(tls.keyFile) },
    (socket) => {
      const { remotePort } = socket
      socket.on('error', () => {})
      let body = ''
      socket.on('data', (data) => {
        body += data.toString('latin1')
        const head = body.indexOf('\r\n\r\n')
        const length = Number(/content-length: (\d+)/i.exec(body.slice(0, head))?.[1] ?? 0)
        if (head < 0 || body.length < head + 4 + length) return
        body = ''
        connections.requested(remotePort!)
        answer(socket, connections.open.get(remotePort!)!)
      })
    },
  )
  server.on('tlsClientError', () => {})
  server.on('connection', (socket: Socket) => connections.add(socket))
  return server
}
