/**
 * A pending delivery as the request that is sent, and what came of it as the result that is recorded.
 */
import type { Clock } from '../src/clock.ts'
import type { PendingDelivery } from '../src/deliveries/delivery-queue-repository.ts'
import type { AttemptResult, LaneRun } from '../src/deliveries/recording-rules.ts'
import { parseRetryAfter } from '../src/deliveries/retry-schedule.ts'
import { sign } from '../src/deliveries/signature.ts'
import { publicEventId } from '../src/ids.ts'
import { keysAt, type DeliverySettings } from '../src/webhooks/delivery-settings-repository.ts'
import type { AttemptOutcome, WebhookRequest } from './webhook-client.ts'

const LONG_AGO_MS = 1000

/** Each attempt is signed anew, under the same id; that is done when it is put together, beside others. */
export class SignedRequest implements WebhookRequest {
  readonly #settings: DeliverySettings
  readonly #delivery: PendingDelivery
  readonly #startedAt: Date
  readonly #clock: Clock

  /** @param startedAt the attempt's own time */
  constructor(settings: DeliverySettings, delivery: PendingDelivery, startedAt: Date, clock: Clock) {
    this.#settings = settings
    this.#delivery = delivery
    this.#startedAt = startedAt
    this.#clock = clock
  }

  get accountId(): string {
    return this.#settings.accountId
  }

  get endpoint(): string {
    return this.#settings.endpoint
  }

  get body(): Buffer {
    return this.#delivery.body
  }

  get headers(): Record<string, string> {
    const at = this.#signedAt()
    const timestamp = Math.floor(at.getTime() / 1000)
    const id = publicEventId(this.#delivery.eventId)
    return {
      'webhook-id': id,
      'webhook-timestamp': String(timestamp),
      'webhook-signature': sign(keysAt(this.#settings, at), id, timestamp, this.body),
    }
  }

  /** The attempt's own time, unless it has taken its time to be connected: a receiver looks at how old a signature is. */
  #signedAt(): Date {
    const isLongAgo = this.#clock.nowMs() - this.#startedAt.getTime() > LONG_AGO_MS
    return isLongAgo ? this.#clock.now() : this.#startedAt
  }
}

/**
 * @param token of the ownership under which the attempt was made
 * @param run that made it
 * @param clock for a `Retry-After` that names a date
 */
export function attemptResult(
  token: string,
  run: LaneRun,
  delivery: PendingDelivery,
  startedAt: Date,
  outcome: AttemptOutcome,
  clock: Clock,
): AttemptResult {
  const { ok, class: kind, status, error, answer, durationMs, retryAfter } = outcome
  return {
    token,
    run,
    webhookId: delivery.webhookId,
    eventId: delivery.eventId,
    dueAt: delivery.dueAt,
    place: delivery.place,
    held: delivery.held,
    queueMoves: delivery.queueMoves,
    n: delivery.attempts + 1,
    earlyAttempts: delivery.earlyAttempts,
    epoch: delivery.epoch,
    isTest: delivery.isTest,
    isMessage: delivery.isMessage,
    startedAt,
    durationMs,
    ok,
    class: kind,
    status,
    error,
    answer,
    retryAfterMs: retryAfter === undefined ? undefined : parseRetryAfter(retryAfter, clock.nowMs()),
  }
}
