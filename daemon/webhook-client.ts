/**
 * The one outbound call to an integrator. A fault of the remote side is a value with a class, never thrown.
 */
import { monotonicMs } from '../src/clock.ts'
import { attemptFault, type AttemptClass } from './attempt-faults.ts'
import { Deadlines, STOOD_STILL_MS, type Deadline } from './deadlines.ts'
import type { EndpointConnection, Exchange } from './endpoint-connection.ts'
import { createEndpointConnector, type ConnectorOptions } from './endpoint-connector.ts'
import { EndpointPools } from './endpoint-pools.ts'
import type { HttpAnswer } from './http-answer.ts'
import { headEnd, requestBytes, requestTarget, type RequestMemory, type RequestTarget } from './http-request.ts'
import { TurnEnd, type Settling } from './turn-end.ts'

/** From the start of the attempt (name look-up) to the end of the answer's head. Source: specification, delivery rule 1. */
const HEAD_DEADLINE_MS = 10_000
/** After the head: for how long the body is read. */
const BODY_READ_MS = 2000
/** A webhook's endpoint is the same string each time: so many are known, and then learned anew. */
const MAX_TARGETS = 5000

export interface WebhookRequest {
  /** Whose endpoint it is: no connection carries requests of two accounts. */
  readonly accountId: string
  readonly endpoint: string
  /** Looked at when the request is put together, which is later where others are under way. */
  readonly headers: Record<string, string>
  readonly body: Buffer
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
  /** The same for those who send thousands a second. @param done is called once, never before `send` has returned */
  send(request: WebhookRequest, done: (outcome: AttemptOutcome) => void): void
  close(): Promise<void>
}

export interface WebhookClientOptions extends ConnectorOptions {
  /** Of all requests. */
  headers?: Record<string, string>
}

/** @param headDeadlineMs from the start of an attempt to the end of the answer's head; 10 s by the specification */
export function createWebhookClient(options: WebhookClientOptions, headDeadlineMs = HEAD_DEADLINE_MS): WebhookClient {
  const turnEnd = new TurnEnd()
  const shared: Shared = {
    turnEnd,
    pools: new EndpointPools(createEndpointConnector(options), turnEnd),
    headDeadlineMs,
    headDeadlines: new Deadlines<Attempt>(headDeadlineMs, (attempt) => attempt.timeOut()),
    bodyDeadlines: new Deadlines<Attempt>(BODY_READ_MS, (attempt) => attempt.settle()),
  }
  /** By account and endpoint: a key of both would be made anew for each request. */
  const targets = new Map<string, Map<string, RequestTarget>>()
  let known = 0

  /** @throws TypeError when the endpoint is no https URL */
  function targetOf({ accountId, endpoint }: WebhookRequest): RequestTarget {
    const target = targets.get(accountId)?.get(endpoint)
    return target ?? learn(accountId, endpoint)
  }

  function learn(accountId: string, endpoint: string): RequestTarget {
    const target = requestTarget(accountId, new URL(endpoint), options.headers ?? {})
    if (known >= MAX_TARGETS) {
      targets.clear()
      known = 0
    }
    const ofAccount = targets.get(accountId) ?? new Map<string, RequestTarget>()
    targets.set(accountId, ofAccount.set(endpoint, target))
    known += 1
    return target
  }

  function send(request: WebhookRequest, done: (outcome: AttemptOutcome) => void): void {
    let target: RequestTarget
    try {
      target = targetOf(request)
    } catch {
      queueMicrotask(() => done({ ...UNUSABLE_ENDPOINT }))
      return
    }
    new Attempt(shared, target, request, done).start()
  }

  return {
    send,
    post: (request) => new Promise((resolve) => send(request, resolve)),
    async close() {
      shared.pools.close()
      shared.headDeadlines.close()
      shared.bodyDeadlines.close()
    },
  }
}

interface Shared {
  turnEnd: TurnEnd
  pools: EndpointPools
  headDeadlineMs: number
  headDeadlines: Deadlines<Attempt>
  bodyDeadlines: Deadlines<Attempt>
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

class OutOfTime extends Error {}

class Attempt implements Exchange, Settling {
  readonly #shared: Shared
  readonly #target: RequestTarget
  readonly #request: WebhookRequest
  readonly #done: (outcome: AttemptOutcome) => void
  readonly #startedAtMs = monotonicMs()
  #deadlines: Deadlines<Attempt>
  #deadline: Deadline<Attempt>
  #connection: EndpointConnection | undefined
  #retried = false
  #answer: HttpAnswer | undefined
  #outcome: AttemptOutcome | undefined
  #starting = true
  #settled = false

  constructor(shared: Shared, target: RequestTarget, request: WebhookRequest, done: (outcome: AttemptOutcome) => void) {
    this.#shared = shared
    this.#target = target
    this.#request = request
    this.#done = done
    this.#deadlines = shared.headDeadlines
    this.#deadline = this.#deadlines.add(this, this.#startedAtMs)
  }

  start(): void {
    try {
      this.#connection = this.#shared.pools.send(this.#target, this, this.#startedAtMs)
    } catch (error) {
      this.failed(error as Error, false)
    }
    this.#starting = false
  }

  /** @throws where the process stood still while it was being connected: what is out of time already is not sent, and then sent again */
  bytes(memory: RequestMemory | undefined): Buffer {
    if (monotonicMs() - this.#startedAtMs >= this.#shared.headDeadlineMs) throw new OutOfTime()
    const { headers, body } = this.#request
    return requestBytes(this.#target, headEnd(headers, body), body, memory)
  }

  answered(answer: HttpAnswer): void {
    const nowMs = monotonicMs()
    const durationMs = nowMs - this.#startedAtMs
    const lateMs = durationMs - this.#shared.headDeadlineMs
    // So late it would have expired long ago, had this process not stood still: it may have come in time.
    if (lateMs > 0 && lateMs < STOOD_STILL_MS) return this.timeOut()
    const { status, retryAfter } = answer
    const ok = status <= 299
    const error = ok ? null : `HTTP status ${status}`
    const kind = ok ? 'ok' : 'http_status'
    this.#answer = answer
    this.#outcome = { ok, class: kind, status, error, answer: null, retryAfter, durationMs }
    if (answer.over) return
    this.#deadlines.remove(this.#deadline)
    this.#deadlines = this.#shared.bodyDeadlines
    this.#deadline = this.#deadlines.add(this, nowMs)
  }

  ended(): void {
    this.#shared.turnEnd.settle(this)
  }

  failed(error: Error, untouched: boolean): void {
    // The verdict fell with the head; what becomes of the body changes nothing.
    if (this.#outcome) return this.settle()
    if (error instanceof OutOfTime) return this.timeOut()
    const fault = attemptFault(error)
    if (fault.class === 'reset' && untouched && !this.#retried) return this.#retry()
    this.#fail(fault.class, fault.error)
  }

  timeOut(): void {
    this.#fail('timeout', `no answer within ${this.#shared.headDeadlineMs / 1000} s`)
  }

  /**
   * The server closed a kept-alive connection while our request was on its way. A fresh connection tells whether the endpoint
   * works; the deadline goes on.
   */
  #retry(): void {
    this.#retried = true
    try {
      this.#connection = this.#shared.pools.sendFresh(this.#target, this)
    } catch (error) {
      this.failed(error as Error, false)
    }
  }

  #fail(faultClass: AttemptClass, error: string): void {
    if (this.#outcome) return
    const durationMs = monotonicMs() - this.#startedAtMs
    this.#outcome = {
      ok: false,
      class: faultClass,
      status: null,
      error,
      answer: null,
      retryAfter: undefined,
      durationMs,
    }
    this.settle()
  }

  settle(): void {
    if (this.#settled || !this.#outcome) return
    this.#settled = true
    this.#deadlines.remove(this.#deadline)
    // Whatever is still under way on this connection is cut off: the slot is free, and so is the socket.
    this.#connection?.abandon(this)
    const outcome = this.#outcome
    if (this.#answer) outcome.answer = this.#answer.kept
    // Whoever sends the next one when it hears of this one would go deeper and deeper where each fails at once.
    if (this.#starting) queueMicrotask(() => this.#done(outcome))
    else this.#done(outcome)
  }
}
