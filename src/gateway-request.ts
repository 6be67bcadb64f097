/**
 * One call to a gateway of the lab, and the file that stands in for it in development. What answers is a stranger: its
 * status counts, its body is read for a moment and thrown away.
 */
import { appendFile, mkdir } from 'node:fs/promises'
import { request as httpRequest } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { join } from 'node:path'
import { monotonicMs } from './clock.ts'

const BODY_READ_BYTES = 16_384
/** Behind the head, which has said it all. */
const BODY_READ_MS = 1000

/** What a call takes at most, with the mark behind it. */
const CALL_MS = 6000

/**
 * Whether a call that begins now ends before anybody else may begin the same: the claim before it may have waited for a connection or
 * for a lock.
 * @param claimedUntil when others may claim it
 */
export function leavesTimeToCall(claimedUntil: Date, nowMs: number): boolean {
  return claimedUntil.getTime() - nowMs >= CALL_MS
}

/** `code` says why, for the log; nothing of what the gateway said. */
export class GatewayFault extends Error {
  readonly code: string
  /** False where the gateway has refused this one request: it may well take others. */
  readonly isOutage: boolean

  constructor(code: string, isOutage: boolean) {
    super('a gateway has not taken a request')
    this.code = code
    this.isOutage = isOutage
  }
}

export interface GatewayRequest {
  url: URL
  /** The same on every try, for the gateway to recognise a repeat by. */
  idempotencyKey: string
  /** Sent as JSON. */
  content: object
  /** From the start of the call to the end of everything. */
  deadlineMs: number
}

/**
 * Resolves when the gateway has taken the request (a status from 200 to 299) and nothing of the call is left open.
 * @throws GatewayFault
 */
export function postToGateway({ url, idempotencyKey, content, deadlineMs }: GatewayRequest): Promise<void> {
  const body = Buffer.from(JSON.stringify(content))
  const send = url.protocol === 'https:' ? httpsRequest : httpRequest
  return new Promise((resolve, reject) => {
    let isAnswered = false
    let fault: GatewayFault | undefined = new GatewayFault('ECONNRESET', true)
    const outgoing = send(url, {
      method: 'POST',
      // A connection of its own: one that is kept may be closed by the other side while it is idle, and a message that meets
      // this would wait for its next try.
      agent: false,
      headers: { 'content-type': 'application/json', 'content-length': body.length, 'idempotency-key': idempotencyKey },
    })
    const startedAtMs = monotonicMs()
    // One deadline of our own: Node's time limits start again with every byte that drips in. Where this process stood still, what
    // has come meanwhile is looked at before it: a yes that goes unheard would be a message that is handed over twice.
    const giveUp = () => outgoing.destroy(new GatewayFault('ETIMEDOUT', true))
    const deadline = setTimeout(() => setImmediate(giveUp), deadlineMs)
    outgoing.on('response', (incoming) => {
      isAnswered = true
      fault = faultOfStatus(incoming.statusCode ?? 0)
      const enough = setTimeout(() => incoming.destroy(), BODY_READ_MS)
      incoming.on('close', () => clearTimeout(enough))
      let readBytes = 0
      incoming.on('data', (chunk: Buffer) => {
        readBytes += chunk.length
        if (readBytes > BODY_READ_BYTES) incoming.destroy()
      })
      incoming.on('error', () => {})
    })
    outgoing.on('error', (error: NodeJS.ErrnoException) => {
      // Once the status is there, how the rest ends changes nothing.
      if (!isAnswered)
        fault = error instanceof GatewayFault ? error : new GatewayFault(error.code ?? 'ECONNRESET', true)
    })
    // After whatever ended it: an answer, a fault, the deadline, a change of the protocol, or a connection that just closes.
    outgoing.on('close', () => {
      clearTimeout(deadline)
      if (fault) reject(fault)
      else resolve()
    })
    // Nothing is written before there is a connection: where this process stood still meanwhile, what is out of time already would be
    // handed over, and handed over again.
    outgoing.on('socket', (socket) => {
      socket.once(url.protocol === 'https:' ? 'secureConnect' : 'connect', () => {
        if (monotonicMs() - startedAtMs >= deadlineMs) giveUp()
        else outgoing.end(body)
      })
    })
  })
}

/** Timeout, too many requests, and what stands for a service that is not there. A 500 may be about this one request. */
const OUTAGES = new Set([408, 429, 502, 503, 504])

function faultOfStatus(status: number): GatewayFault | undefined {
  if (status >= 200 && status <= 299) return undefined
  return new GatewayFault(`HTTP_${status}`, OUTAGES.has(status))
}

/** Appends one JSON object to a file of the outbox, which only its owner reads. */
export async function appendToOutbox(dataDir: string, file: string, content: object): Promise<void> {
  const folder = join(dataDir, 'outbox')
  await mkdir(folder, { recursive: true })
  await appendFile(join(folder, file), `${JSON.stringify(content)}\n`, { mode: 0o600 })
}
