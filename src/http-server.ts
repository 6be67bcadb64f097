/**
 * How the application is put on a port: time limits against slow callers, and the error shape also for what is no HTTP.
 */
import { randomUUID } from 'node:crypto'
import { createServer, type IncomingMessage, type RequestListener, type Server, type ServerResponse } from 'node:http'
import { Server as NetServer, type AddressInfo, type Socket } from 'node:net'
import { monotonicMs } from './clock.ts'
import { toProtocolErrorResponse } from './error-response.ts'
import { badRequest } from './errors.ts'
import { hasBody, mediaTypeOf } from './request-body.ts'

/** A whole head, from its first byte; checked each second. */
const HEADERS_TIMEOUT_MS = 10_000
/** A body, from the end of its head: with what a client that stays on gets besides, it is gone after 15 s. */
const BODY_TIMEOUT_MS = 14_000
/** The file of a report, which is many times as large: 20 MB in it are 1.4 Mbit/s. */
const FILE_TIMEOUT_MS = 120_000
/** An answer of which nothing is taken for so long, or a request that nothing more comes of. */
const STALLED_TIMEOUT_MS = 60_000
/** Longer than a load balancer's 60 s, so that it is the one to close a connection that nobody uses. */
const KEEP_ALIVE_TIMEOUT_MS = 65_000
/** A forged token of 100 KB gets its 401, not a broken connection. */
const MAX_HEADER_BYTES = 128 * 1024

/**
 * An idle connection stays open this long when the server is told to stop: a request that its client was about to send is
 * answered, with `Connection: close`, instead of meeting a closed connection.
 */
const IDLE_GRACE_MS = 500

/** A listener that is told to stop closes as soon as nothing waits to be accepted, and after this time in any case. */
const ACCEPT_LIMIT_MS = 5000
/** The event loop came round in so little time: it had next to nothing to do. A busy one is waited for so long. */
const QUIET_ROUND_MS = 0.2
const QUIET_LIMIT_MS = 1000

/** How long a connection that no longer speaks HTTP stays open after its answer. */
const LINGER_MS = 1000

interface Connection {
  /** Answers that are not through yet. */
  running: number
  /** What had been read when the last answer was through: more than that is a request on its way. */
  settledBytes: number
}

/**
 * Open connections by server. Node's own `closeIdleConnections` takes one for idle whose answer was written but not sent
 * yet, and never one that was opened and not used.
 */
const connectionsOf = new WeakMap<Server, Map<Socket, Connection>>()

/**
 * @param bodyTimeoutMs what a body that is no file may take
 * @param stalledTimeoutMs after which a connection is cut on which a request is under way and no byte moves
 */
export function createHttpServer(
  listener: RequestListener,
  bodyTimeoutMs = BODY_TIMEOUT_MS,
  stalledTimeoutMs = STALLED_TIMEOUT_MS,
): Server {
  const answer: RequestListener = (req, res) => {
    endUpgrade(req, res)
    listener(req, res)
  }
  const server = createServer(
    {
      headersTimeout: HEADERS_TIMEOUT_MS,
      requestTimeout: HEADERS_TIMEOUT_MS + FILE_TIMEOUT_MS,
      keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
      connectionsCheckingInterval: 1000,
      maxHeaderSize: MAX_HEADER_BYTES,
      // Node would answer these two by itself, without a body.
      requireHostHeader: false,
    },
    answer,
  )
  // Where Node's other limits end: a client that does not read would hold its answers, and the connection, for ever.
  server.setTimeout(stalledTimeoutMs)
  trackConnections(server)
  server.on('request', (req, res) => limitBody(server, req, res, bodyTimeoutMs))
  // Whatever else is expected is passed over: it is a request like any other.
  server.on('checkExpectation', (req, res) => server.emit('request', req, res))
  const lastAnswers = new WeakMap<Socket, ServerResponse>()
  server.on('request', (req, res) => void lastAnswers.set(req.socket, res))
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Socket) => {
    if (error.code === 'ECONNRESET' || !socket.writable) return void socket.destroy()
    const last = lastAnswers.get(socket)
    const refuseNow = () => socket.writable && refuse(socket, error.code)
    // What is wrong stands behind a whole request that is not answered yet: said at once, it would be taken for its answer.
    if (last?.req.complete && !last.writableFinished) last.once('close', refuseNow)
    else refuseNow()
  })
  server.on('connect', (_, socket: Socket) => {
    // Node hands such a socket over without any of its listeners: a reset would end the process.
    socket.on('error', () => socket.destroy())
    refuse(socket, 'CONNECT')
  })
  return server
}

/** An upgrade is not taken, and Node has lost what stood behind it: a request there would be waited for by its client alone. */
function endUpgrade({ headers }: IncomingMessage, res: ServerResponse): void {
  const isUpgrade = headers.upgrade !== undefined && /(^|,)[ \t]*upgrade[ \t]*(,|$)/i.test(headers.connection ?? '')
  if (isUpgrade) res.setHeader('Connection', 'close')
}

/** Answers what never becomes a request, and closes its connection. */
function refuse(socket: Socket, code: string | undefined): void {
  const requestId = randomUUID()
  const { status, body } = toProtocolErrorResponse(code, requestId)
  const text = JSON.stringify(body)
  socket.end(
    `HTTP/1.1 ${status} ${body.message}\r\nConnection: close\r\nX-Request-Id: ${requestId}\r\n` +
      `Content-Type: application/json; charset=utf-8\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`,
  )
  // Read on for a moment: a connection that is closed over unread bytes is reset, and the answer is lost.
  socket.resume()
  setTimeout(() => socket.destroy(), LINGER_MS).unref()
}

/**
 * Node has one limit for all requests, which is that of a file. Another body that is late is answered as Node would; one whose
 * answer is out is cut, a file as well.
 */
function limitBody(server: Server, req: IncomingMessage, res: ServerResponse, timeoutMs: number): void {
  if (!hasBody(req)) return
  const isFile = mediaTypeOf(req) === 'application/pdf' && req.url?.startsWith('/operator/')
  const timer = setInterval(() => {
    if (req.complete) return
    if (res.headersSent) req.socket.destroy()
    else if (!isFile)
      server.emit('clientError', Object.assign(new Error(), { code: 'ERR_HTTP_REQUEST_TIMEOUT' }), req.socket)
  }, timeoutMs)
  req.once('end', () => clearTimeout(timer)).once('close', () => clearTimeout(timer))
}

/** The one that the caller has sent, if it is fit to be logged. */
export function requestIdOf({ headers }: IncomingMessage, make: () => string): string {
  const sent = headers['x-request-id']
  return typeof sent === 'string' && /^[A-Za-z0-9._-]{1,128}$/.test(sent) ? sent : make()
}

/** RFC 9112 3.2. Node itself would answer without a body, and takes the first of several. */
export function requireOneHost({ httpVersion, rawHeaders }: IncomingMessage): void {
  let hosts = 0
  for (let n = 0; n < rawHeaders.length; n += 2) {
    if (rawHeaders[n]!.length === 4 && rawHeaders[n]!.toLowerCase() === 'host') hosts += 1
  }
  if (hosts > 1 || (hosts === 0 && httpVersion === '1.1')) {
    throw badRequest('a request of HTTP/1.1 has one Host header', 'invalid_http')
  }
}

/**
 * @param reusePort share the port with other processes that say so, too: the kernel spreads new connections over them
 * @returns the port that was bound. @throws EADDRINUSE, EACCES and the like; ENOTSUP where a port can't be shared
 */
export async function listen(server: Server, port: number, host: string, reusePort = false): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen({ port, host, reusePort }, () => {
      server.off('error', reject)
      resolve((server.address() as AddressInfo).port)
    })
  })
}

/** How to call what listens there; an address that means "all" is reached by loopback. */
export function urlOf(host: string, port: number): string {
  const reachable = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host
  return `http://${reachable.includes(':') ? `[${reachable}]` : reachable}:${port}`
}

function trackConnections(server: Server): void {
  const connections = new Map<Socket, Connection>()
  connectionsOf.set(server, connections)
  server.on('connection', (socket) => {
    connections.set(socket, { running: 0, settledBytes: 0 })
    socket.on('close', () => connections.delete(socket))
  })
  server.on('request', ({ socket }, res) => {
    const connection = connections.get(socket)
    if (!connection) return
    connection.running++
    res.on('close', () => {
      connection.running--
      connection.settledBytes = socket.bytesRead
    })
  })
}

/**
 * What the kernel has connected and we have not accepted yet is reset when the listener goes, and with a shared port such
 * connections go on coming until then. The event loop accepts one connection each time it comes round, so it comes round until
 * there is none, and until that took so little time that hardly one can have come since.
 */
async function acceptWhatWaits(server: Server): Promise<void> {
  let accepted = 0
  const count = () => (accepted += 1)
  server.on('connection', count)
  const sinceMs = monotonicMs()
  // To where the loop comes by right after it has looked at all connections: from here on a round is a look at them.
  await new Promise((resolve) => setImmediate(resolve))
  for (;;) {
    accepted = 0
    const startedAtMs = monotonicMs()
    await new Promise((resolve) => setImmediate(resolve))
    const nowMs = monotonicMs()
    if (nowMs - sinceMs > ACCEPT_LIMIT_MS) break
    if (accepted === 0 && (nowMs - startedAtMs < QUIET_ROUND_MS || nowMs - sinceMs > QUIET_LIMIT_MS)) break
  }
  server.off('connection', count)
}

/**
 * Takes no more connections, ends those that are idle, and waits for the others.
 * @param limitMs after which what is still running is cut
 */
export async function drain(server: Server, limitMs: number): Promise<void> {
  const startedAt = monotonicMs()
  await acceptWhatWaits(server)
  const acceptedAllAt = monotonicMs()
  // Of net, because http's close begins with `closeIdleConnections`.
  const closed = new Promise<void>((resolve) => NetServer.prototype.close.call(server, () => resolve()))
  const sweep = setInterval(() => {
    const nowMs = monotonicMs()
    for (const [socket, { running, settledBytes }] of connectionsOf.get(server) ?? []) {
      const isIdle = running === 0 && socket.bytesRead === settledBytes
      if (nowMs - startedAt > limitMs || (isIdle && nowMs - acceptedAllAt > IDLE_GRACE_MS)) socket.destroy()
    }
  }, 50)
  await closed
  clearInterval(sweep)
}
