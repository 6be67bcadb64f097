/**
 * Deliveries of this daemon, as they are counted and shown. Called for batches that are on disk, once each.
 */
import type { HealthChange } from './deliveries/recorded-health.ts'
import { timeOfId } from './ids.ts'
import { samplesOf, Tally, type Metrics } from './metrics.ts'

/** From a few milliseconds to the last retry. */
const BOUNDS_SECONDS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 43_200, 86_400]

export interface RecordedAttempt {
  webhookId: string
  eventId: string
  class: string
  ok: boolean
  isTest: boolean
}

const HEALTHS: HealthChange['to'][] = ['healthy', 'failing', 'auto_deleted']

/** What can be counted is there from the start: of a counter that appears with its first count nobody sees that it rose. */
const zeros = (words: readonly string[]) => new Map(words.map((word) => [word, 0]))

export class DeliveryCounts {
  readonly #attempts: Map<string, number>
  readonly #latency = new Tally(BOUNDS_SECONDS)
  readonly #healthChanges = zeros(HEALTHS)
  #exhausted = 0

  /** @param classes what can come of an attempt */
  constructor(classes: readonly string[]) {
    this.#attempts = zeros(classes)
  }

  /** @param nowMs the database's time, at which the batch was recorded */
  recorded(
    attempts: RecordedAttempt[],
    batch: { lostWebhookIds: Set<string>; healthChanges: { to: string }[]; exhausted: number },
    nowMs: number,
  ): void {
    for (const attempt of attempts) {
      // Not recorded: its lane is another daemon's now.
      if (batch.lostWebhookIds.has(attempt.webhookId)) continue
      this.#attempts.set(attempt.class, (this.#attempts.get(attempt.class) ?? 0) + 1)
      // Retries and what waited count as well: a delivery is as late as its event is old.
      if (attempt.ok && !attempt.isTest) this.#latency.add(Math.max(0, nowMs - timeOfId(attempt.eventId)) / 1000)
    }
    for (const { to } of batch.healthChanges) this.#healthChanges.set(to, (this.#healthChanges.get(to) ?? 0) + 1)
    this.#exhausted += batch.exhausted
  }

  register(metrics: Metrics): void {
    metrics.counter('lis_delivery_attempts_total', 'Recorded attempts, by what came of them', () =>
      samplesOf('class', this.#attempts),
    )
    metrics.histogram('lis_delivery_latency_seconds', 'From the event to the record of its 2xx', () => [
      { tally: this.#latency },
    ])
    metrics.counter('lis_deliveries_exhausted_total', 'Deliveries whose last attempt failed', () => [
      { value: this.#exhausted },
    ])
    metrics.counter('lis_webhook_health_changes_total', 'Changes of the health of webhooks, by what they became', () =>
      samplesOf('to', this.#healthChanges),
    )
  }
}
