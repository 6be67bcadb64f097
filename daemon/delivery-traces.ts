/**
 * Fan-out and attempts as spans of the traces that their events came with. Beside the work, never in it: what happened is
 * noted here, and each second one query tells which of the events are traced. There is none where tracing is off.
 */
import type { Knex } from 'knex'
import type { AttemptResult } from '../src/deliveries/recording-rules.ts'
import { listTracedEvents } from '../src/events/events-repository.ts'
import { errorFields, type Logger } from '../src/logger.ts'
import type { EndedSpan, Tracing } from '../src/spans.ts'

const LOOK_UP_EACH_MS = 1000
/** A database that takes longer has other things to do, and a daemon that stops must not wait. */
const LOOK_UP_LIMIT_MS = 2000
/** More than that between two look-ups is not told: traces are samples, deliveries are not to wait for them. */
const MOST_NOTED = 5000

export interface DeliveryTracesOptions {
  knex: Knex
  tracing: Tracing
  log: Logger
}

interface Noted {
  eventId: string
  span: Omit<EndedSpan, 'traceParent'>
}

export class DeliveryTraces {
  readonly #options: DeliveryTracesOptions
  #noted: Noted[] = []
  #dropped = 0
  #timer: NodeJS.Timeout | undefined
  #looking: Promise<void> = Promise.resolve()

  constructor(options: DeliveryTracesOptions) {
    this.#options = options
  }

  /** Every attempt that has ended, also one whose record another daemon will refuse: the request was made. */
  attempted({ eventId, webhookId, n, startedAt, durationMs, ok, class: kind, status }: AttemptResult): void {
    this.#note(eventId, {
      name: 'delivery.attempt',
      kind: 'client',
      startedAt,
      durationMs,
      failed: !ok,
      attributes: {
        'lis.webhook_id': webhookId,
        'lis.attempt': n,
        'http.response.status_code': status,
        'error.type': ok ? undefined : kind,
      },
    })
  }

  /** @param batch of one fan-out transaction, which all of its events share */
  routed(eventIds: string[], batch: { startedAt: Date; durationMs: number }): void {
    for (const eventId of eventIds) {
      this.#note(eventId, { name: 'event.fan_out', kind: 'internal', ...batch, failed: false, attributes: {} })
    }
  }

  /** What is noted is handed on, if the database still tells of it. */
  async stop(): Promise<void> {
    clearTimeout(this.#timer)
    await this.#looking
    await this.#lookUp()
  }

  #note(eventId: string, span: Noted['span']): void {
    if (this.#noted.length >= MOST_NOTED) {
      this.#dropped += 1
      return
    }
    this.#noted.push({ eventId, span })
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined
      this.#looking = this.#looking.then(() => this.#lookUp())
    }, LOOK_UP_EACH_MS).unref()
  }

  async #lookUp(): Promise<void> {
    const { knex, tracing, log } = this.#options
    const noted = this.#noted
    const dropped = this.#dropped
    this.#noted = []
    this.#dropped = 0
    if (dropped > 0) log.warn('traces.dropped', { events: dropped })
    if (noted.length === 0) return
    try {
      const eventIds = [...new Set(noted.map(({ eventId }) => eventId))]
      const traced = await listTracedEvents(knex, eventIds, LOOK_UP_LIMIT_MS)
      for (const { eventId, span } of noted) {
        const event = traced.get(eventId)
        if (!event) continue
        const attributes = { ...span.attributes, 'lis.event_id': eventId, 'lis.event_type': event.type }
        tracing.record({ ...span, attributes, traceParent: event.traceParent })
      }
    } catch (error) {
      log.warn('traces.dropped', { ...errorFields(error), events: noted.length })
    }
  }
}
