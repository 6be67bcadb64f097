/**
 * The receiver of the benchmarks, a process of its own: counts receipts and notices any that comes twice. The first part of
 * a path says how it behaves: `/ok/…` answers at once, `/hang/…` never, `/slow/…` after 9 s, `/flood/…` at once with a body
 * that has no end. `/busy/…` answers at once and is counted apart.
 *
 * It shares two cores with what is measured, and so does no more than a receiver must: TLS, the head's first line, the id and
 * the length of the body. node:https takes half as long again and more, for objects that nobody looks at.
 *
 * Told over IPC: `{reset: true}` (with `forget: true` it does not count the first receipt), `{count: true}`, with `delays: true` those as well. Tells: `{port}`, and to each
 * `count` its counts since the last reset.
 */
import { readFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { createServer, type TLSSocket } from 'node:tls'
import { machineMs } from './machine-clock.ts'
import { SeenTexts } from './seen-texts.ts'

const SLOW_MS = 9000
const HEAD_END = '\r\n\r\n'
const NO_CONTENT = 'HTTP/1.1 204 No Content\r\nKeep-Alive: timeout=30\r\n\r\n'
const FLOOD_HEAD = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'
const FLOOD_CHUNK = `1000\r\n${'x'.repeat(4096)}\r\n`
const MAX_UNSENT_BYTES = 1_000_000
const OK = 'HTTP/1.1 200 OK\r\nKeep-Alive: timeout=30\r\nContent-Length: 0\r\n\r\n'

/** Both go by the same clock. */
const WALL_CLOCK_AHEAD_MS = performance.timeOrigin + performance.now() - machineMs()

const [certificateFile, keyFile] = process.argv.slice(2) as [string, string]

let seen = new SeenTexts()
let doubled = 0
/** A control: the next receipt is not counted. */
let forgets = false
let firstAtMs = 0
let lastAtMs = 0
let busyReceipts = 0
let lastBusyAtMs = 0
/** From the time in the body (`recordedAtMs`, or the load's own `integratorID`) to the request's head, of healthy paths, in milliseconds. */
let delays: number[] = []

interface Request {
  path: string
  /** Its `webhook-id`. */
  id: string
  /** Of head and body. */
  length: number
  /** Of the whole request. */
  text: string
  atMs: number
}

/** @returns undefined while the head has not all arrived. @throws when it is none that our senders send */
function readHead(text: string): Request | undefined {
  const headEnd = text.indexOf(HEAD_END)
  if (headEnd < 0) return undefined
  const lengthText = headerOf(text, headEnd, 'content-length')
  if (!text.startsWith('POST /') || lengthText === undefined || !/^\d+$/.test(lengthText)) throw new Error('no request')
  return {
    path: text.slice(5, text.indexOf(' ', 5)),
    id: headerOf(text, headEnd, 'webhook-id') ?? '',
    length: headEnd + HEAD_END.length + Number(lengthText),
    text,
    atMs: machineMs(),
  }
}

/** @param name as our senders write it */
function headerOf(text: string, headEnd: number, name: string): string | undefined {
  const at = text.indexOf(`\r\n${name}: `)
  if (at < 0 || at > headEnd) return undefined
  const valueAt = at + name.length + 4
  return text.slice(valueAt, text.indexOf('\r', valueAt))
}

/** As fast as it is taken, and a little more. */
function flood(socket: TLSSocket): void {
  socket.write(FLOOD_HEAD)
  const timer = setInterval(() => socket.writableLength < MAX_UNSENT_BYTES && socket.write(FLOOD_CHUNK), 1)
  socket.once('close', () => clearInterval(timer))
}

/** @returns what is answered at once */
function take({ path, id, text, atMs }: Request, socket: TLSSocket): string | undefined {
  if (firstAtMs === 0) firstAtMs = atMs
  lastAtMs = atMs
  if (path.startsWith('/hang/')) return undefined
  if (path.startsWith('/slow/')) {
    setTimeout(() => socket.writable && socket.write(OK), SLOW_MS)
    return undefined
  }
  if (path.startsWith('/flood/')) {
    flood(socket)
    return undefined
  }
  if (path.startsWith('/busy/')) {
    busyReceipts += 1
    lastBusyAtMs = atMs
    return NO_CONTENT
  }
  if (forgets) {
    forgets = false
    return NO_CONTENT
  }
  if (!seen.add(`${path} ${id}`)) doubled += 1
  const recordedAtMs = /"recordedAtMs":([\d.]+)/.exec(text)?.[1]
  if (recordedAtMs) delays.push(atMs + WALL_CLOCK_AHEAD_MS - Number(recordedAtMs))
  const sentAtMs = /"integratorID":"at-([\d.]+)-/.exec(text)?.[1]
  if (sentAtMs) delays.push(atMs - Number(sentAtMs))
  return NO_CONTENT
}

const server = createServer({ cert: readFileSync(certificateFile), key: readFileSync(keyFile) }, (socket) => {
  let rest = ''
  let request: Request | undefined
  socket.on('error', () => socket.destroy())
  socket.on('data', (chunk: Buffer) => {
    rest += chunk.toString('latin1')
    try {
      request ??= readHead(rest)
    } catch {
      return void socket.destroy()
    }
    // Our senders send the next request when they have the answer to this one.
    if (!request || rest.length < request.length) return
    const answer = take({ ...request, text: rest }, socket)
    rest = ''
    request = undefined
    if (answer) socket.write(answer, 'latin1')
  })
})
server.listen(0, '127.0.0.1', () => process.send!({ port: (server.address() as AddressInfo).port }))

process.on('message', (message: { reset?: true; forget?: boolean; count?: true; delays?: true }) => {
  if (message.reset) {
    seen = new SeenTexts()
    forgets = message.forget ?? false
    delays = []
    doubled = firstAtMs = lastAtMs = busyReceipts = lastBusyAtMs = 0
  }
  if (message.count)
    process.send!({
      counts: {
        receipts: seen.size,
        doubled,
        firstAtMs,
        lastAtMs,
        busyReceipts,
        lastBusyAtMs,
        delays: message.delays ? delays : [],
      },
    })
})
process.on('disconnect', () => process.exit(0))
