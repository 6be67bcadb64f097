/**
 * The one outbound call to an integrator. A fault of the remote side is a value with a class, never thrown.
 */
import { subscribe } from 'node:diagnostics_channel'
import type { Socket } from 'node:net'
import { Client, Pool, type Dispatcher } from 'undici'
import { monotonicMs } from '../src/clock.ts'
import { attemptFault, type AttemptClass } from './attempt-faults.ts'
import { Deadlines } from './deadlines.ts'
import { createEndpointConnector, type ConnectorOptions } from './endpoint-connector.ts'

/** From the start of the attempt (name look-up) to the end of the answer's head. Source: specification, delivery rule 1. */
const HEAD_DEADLINE_MS = 10_000
/** After the head: how much of the body is read, for how long, and how much is kept. */
const BODY_READ_BYTES = 16_384
const BODY_READ_MS = 2000
const BODY_KEPT_BYTES = 1024
const IDLE_SOCKET_MS = 8000
/** The attempt's own deadline comes before that of its connection. */
const CONNECT_GRACE_MS = 200
/** A pool that nothing was sent through for so long is closed. */
const IDLE_POOL_MS = 60_000
const MAX_HEAD_BYTES = 16_384

export interface WebhookRequest {
  endpoint: string
  headers: Record<string, string>
  body: Buffer
}

export interface AttemptOutcome {
  ok: boolean
  class: AttemptClass
  status: number | null
  error: string | null
  answer: Buffer | null
  retryAfter: string | undefined
  /** From the attempt's start to its verdict (the end of the head), in milliseconds. */
  durationMs: number
}

export interface WebhookClient {
  post(request: WebhookRequest): Promise<AttemptOutcome>
  close(): Promise<void>
}

/** @param headDeadlineMs from the start of an attempt to the end of the answer's head; 10 s by the specification */
export function createWebhookClient(options: ConnectorOptions, headDeadlineMs = HEAD_DEADLINE_MS): WebhookClient {
  const connect = createEndpointConnector(options, headDeadlineMs + CONNECT_GRACE_MS)
  const clientOptions = {
    connect,
    pipelining: 1,
    // Else the first connection decides the protocol, and all others wait for it: on behalf of attempts long over, too.
    allowH2: false,
    // The deadlines are our own: undici's would stop at each part, not at the whole.
    headersTimeout: 0,
    bodyTimeout: 0,
    keepAliveTimeout: IDLE_SOCKET_MS,
    keepAliveMaxTimeout: IDLE_SOCKET_MS,
    maxHeaderSize: MAX_HEAD_BYTES,
  }
  const pools = new Map<string, { pool: Pool; usedAtMs: number }>()
  /** Parsed once: a webhook's endpoint is the same string each time. */
  const targets = new Map<string, Target>()
  const deadlines = { headMs: headDeadlineMs, head: new Deadlines(headDeadlineMs), body: new Deadlines(BODY_READ_MS) }

  /** @throws TypeError when the endpoint is no URL */
  function targetOf(endpoint: string): Target {
    let target = targets.get(endpoint)
    if (!target) {
      const { origin, pathname, search } = new URL(endpoint)
      target = { origin, path: pathname + search }
      targets.set(endpoint, target)
    }
    return target
  }

  function poolOf(origin: string): Pool {
    let entry = pools.get(origin)
    if (!entry) {
      entry = { pool: new Pool(origin, clientOptions), usedAtMs: 0 }
      pools.set(origin, entry)
    }
    entry.usedAtMs = monotonicMs()
    return entry.pool
  }

  const sweeper = setInterval(() => {
    const staleBefore = monotonicMs() - IDLE_POOL_MS
    targets.clear()
    for (const [origin, { pool, usedAtMs }] of pools) {
      if (usedAtMs > staleBefore) continue
      pools.delete(origin)
      void pool.close().catch(() => {})
    }
  }, IDLE_POOL_MS)
  sweeper.unref()

  return {
    post(request) {
      return new Promise((resolve) => {
        let target: Target
        try {
          target = targetOf(request.endpoint)
        } catch {
          resolve({ ...UNUSABLE_ENDPOINT })
          return
        }
        const fresh = () => new Client(target.origin, clientOptions)
        new Attempt(request, target.path, deadlines, poolOf(target.origin), fresh, resolve).start()
      })
    },
    async close() {
      clearInterval(sweeper)
      deadlines.head.close()
      deadlines.body.close()
      await Promise.all([...pools.values()].map(({ pool }) => pool.destroy().catch(() => {})))
    },
  }
}

interface Target {
  origin: string
  path: string
}

interface AttemptDeadlines {
  headMs: number
  head: Deadlines
  body: Deadlines
}

const UNUSABLE_ENDPOINT: AttemptOutcome = {
  ok: false,
  class: 'protocol',
  status: null,
  error: 'the endpoint is not a usable URL',
  answer: null,
  retryAfter: undefined,
  durationMs: 0,
}

/** How many requests went over a socket: tells a kept-alive connection from a fresh one. */
const requestsOfSocket = new WeakMap<Socket, number>()
/** The attempt whose request is being written. undici writes it in the same turn in which it reports the start. */
let starting: Attempt | undefined

subscribe('undici:client:sendHeaders', (message) => {
  const { socket } = message as { socket: Socket }
  const requests = (requestsOfSocket.get(socket) ?? 0) + 1
  requestsOfSocket.set(socket, requests)
  starting?.onSocket(socket, requests)
  starting = undefined
})

class Attempt implements Dispatcher.DispatchHandler {
  readonly #request: WebhookRequest
  readonly #path: string
  readonly #deadlines: AttemptDeadlines
  readonly #pool: Dispatcher
  readonly #freshClient: () => Client
  readonly #resolve: (outcome: AttemptOutcome) => void
  readonly #startedAtMs = monotonicMs()
  readonly #timeOut = () => this.#fail('timeout', `no answer within ${this.#deadlines.headMs / 1000} s`)
  readonly #endBody = () => this.#settle()
  #controller: Dispatcher.DispatchController | undefined
  #retryClient: Client | undefined
  #socket: Socket | undefined
  #reused = false
  #bytesReadBefore = 0
  #verdict: Omit<AttemptOutcome, 'answer'> | undefined
  #kept: Buffer[] = []
  #bodyBytes = 0
  #settled = false

  constructor(
    request: WebhookRequest,
    path: string,
    deadlines: AttemptDeadlines,
    pool: Dispatcher,
    freshClient: () => Client,
    resolve: (outcome: AttemptOutcome) => void,
  ) {
    this.#request = request
    this.#path = path
    this.#deadlines = deadlines
    this.#pool = pool
    this.#freshClient = freshClient
    this.#resolve = resolve
  }

  start(): void {
    this.#deadlines.head.add(this.#timeOut)
    this.#dispatch(this.#pool)
  }

  #dispatch(dispatcher: Dispatcher): void {
    const { headers, body } = this.#request
    try {
      dispatcher.dispatch({ method: 'POST', path: this.#path, headers, body }, this)
    } catch (error) {
      this.onResponseError(undefined, error as Error)
    }
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    // Set already: the attempt ended while it waited for its connection.
    if (this.#settled) {
      controller.abort(new Error('the attempt is over'))
      return
    }
    this.#controller = controller
    starting = this
  }

  onSocket(socket: Socket, requests: number): void {
    this.#socket = socket
    this.#reused = requests > 1
    this.#bytesReadBefore = socket.bytesRead
  }

  onResponseStart(_controller: Dispatcher.DispatchController, status: number, headers: Record<string, unknown>): void {
    // An informational answer (1xx) is not an answer.
    if (status < 200 || this.#settled || this.#verdict) return
    const durationMs = monotonicMs() - this.#startedAtMs
    if (durationMs > this.#deadlines.headMs) return this.#timeOut()
    const ok = status <= 299
    const retryAfter = headers['retry-after']
    this.#verdict = {
      ok,
      class: ok ? 'ok' : 'http_status',
      status,
      error: ok ? null : `HTTP status ${status}`,
      retryAfter: typeof retryAfter === 'string' ? retryAfter : undefined,
      durationMs,
    }
    this.#deadlines.head.remove(this.#timeOut)
    this.#deadlines.body.add(this.#endBody)
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#settled) return
    if (this.#bodyBytes < BODY_KEPT_BYTES) this.#kept.push(chunk.subarray(0, BODY_KEPT_BYTES - this.#bodyBytes))
    this.#bodyBytes += chunk.length
    if (this.#bodyBytes > BODY_READ_BYTES) this.#settle()
  }

  onResponseEnd(): void {
    this.#settle(true)
  }

  onResponseError(_controller: unknown, error: Error): void {
    if (this.#settled) return
    // The verdict fell with the head; what becomes of the body changes nothing.
    if (this.#verdict) return this.#settle()
    const fault = attemptFault(error)
    if (fault.class === 'reset' && this.#diedIdle()) {
      // The server closed a kept-alive connection while our request was on its way. A fresh connection tells whether the
      // endpoint works; the deadline goes on.
      this.#retryClient = this.#freshClient()
      this.#dispatch(this.#retryClient)
      return
    }
    this.#fail(fault.class, fault.error)
  }

  #diedIdle(): boolean {
    return this.#reused && !this.#retryClient && this.#socket?.bytesRead === this.#bytesReadBefore
  }

  #fail(faultClass: AttemptClass, error: string): void {
    if (this.#settled) return
    const durationMs = monotonicMs() - this.#startedAtMs
    this.#verdict = { ok: false, class: faultClass, status: null, error, retryAfter: undefined, durationMs }
    this.#settle()
  }

  #settle(complete = false): void {
    if (this.#settled || !this.#verdict) return
    this.#settled = true
    this.#deadlines.head.remove(this.#timeOut)
    this.#deadlines.body.remove(this.#endBody)
    // Whatever is still under way on this connection is cut off: the slot is free, and so is the socket.
    if (!complete) this.#controller?.abort(new Error('the attempt is over'))
    if (this.#retryClient) void this.#retryClient.destroy().catch(() => {})
    this.#resolve({ ...this.#verdict, answer: this.#kept.length > 0 ? Buffer.concat(this.#kept) : null })
  }
}
