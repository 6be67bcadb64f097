/**
 * What both chapters of the demo are told with: numbered steps with timings, an integrator's calls, and what a receiver got.
 */
import { randomInt } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { Webhook } from 'standardwebhooks'
import { monotonicMs } from '../src/clock.ts'
import type { HttpsReceiver, ReceivedRequest } from './https-receiver.ts'

export type Json = Record<string, any>

let steps = 0

export async function step<T>(title: string, work: () => Promise<[T, string]>): Promise<T> {
  const startedAtMs = monotonicMs()
  const [result, note] = await work()
  const tookMs = (monotonicMs() - startedAtMs).toFixed(1)
  console.log(`${String(++steps).padStart(2)}. ${title.padEnd(34)} ${tookMs.padStart(7)} ms   ${note}`)
  return result
}

export function must(condition: unknown, message: string): asserts condition {
  if (!condition) throw new Error(message)
}

/** Earlier runs leave the limit's window within seconds of each other: once or twice is enough. */
const MAX_WAITS = 3

export class Integrator {
  readonly #baseUrl: string
  #token = ''
  #waits = 0
  /** How long the limit of CRM calls has held us up, in all. */
  waitedMs = 0

  constructor(baseUrl: string) {
    this.#baseUrl = baseUrl
  }

  useToken(token: string): void {
    this.#token = token
  }

  async call(method: string, path: string, body?: Json): Promise<Json> {
    const response = await this.#send(method, path, body)
    const answer = (await response.json()) as Json
    const retryAfterSeconds = Number(response.headers.get('retry-after'))
    if (response.status === 429 && retryAfterSeconds > 0 && ++this.#waits <= MAX_WAITS) {
      console.log(`    the account has used up its CRM calls of this minute: going on in ${retryAfterSeconds} s …`)
      await delay(retryAfterSeconds * 1000)
      this.waitedMs += retryAfterSeconds * 1000
      return this.call(method, path, body)
    }
    must(response.status === 200, `${method} ${path} answered ${response.status}: ${answer.error?.details ?? ''}`)
    return answer
  }

  #send(method: string, path: string, body: Json | undefined): Promise<Response> {
    return fetch(this.#baseUrl + path, {
      method,
      headers: {
        ...(body ? { 'content-type': 'application/json' } : {}),
        ...(this.#token ? { authorization: `Bearer ${this.#token}` } : {}),
      },
      ...(body ? { body: JSON.stringify(body) } : {}),
    })
  }
}

/** A number that no other run uses today: the service takes one entry a day for each. */
export function freshContact(): string {
  return `9${String(randomInt(1_000_000_000)).padStart(9, '0')}`
}

export async function eventOf(receiver: HttpsReceiver, leadId: string): Promise<ReceivedRequest> {
  for (let count = receiver.requests.length; ; count++) {
    const found = receiver.requests.find((request) => {
      const data = JSON.parse(request.body.toString('utf8')).data
      return (data.lead ?? data.booking)?.leadId === leadId
    })
    if (found) return found
    await receiver.arrived(count + 1)
  }
}

/** With the public library, not with our own code. */
export function verify(secret: string, request: ReceivedRequest): Json {
  return new Webhook(secret).verify(request.body, request.headers as Record<string, string>) as Json
}
