/**
 * A daemon by hand: the real reads and transactions of fan-out, lane and recorder, each when the test says so, with the
 * answers of the webhooks as the test wants them.
 */
import { routeEvents, type Routed } from '../../src/events/event-routing.ts'
import { routeHinted } from '../../src/events/hinted-event-routing.ts'
import { recordAttempts, type Recorded } from '../../src/deliveries/attempts-repository.ts'
import { KnownLanes } from '../../src/deliveries/known-lanes.ts'
import { listDueDeliveries, type PendingDelivery } from '../../src/deliveries/delivery-queue-repository.ts'
import { discardOldCopies, type Discarded } from '../../src/deliveries/old-copies-repository.ts'
import { takeLane } from './take-lane.ts'
import type { AttemptResult, RecordingRules } from '../../src/deliveries/recording-rules.ts'
import { newId } from '../../src/ids.ts'
import type { DeliveryWorld } from './delivery-world.ts'

/** Later than every retry. */
const ALL = new Date('9999-01-01T00:00:00Z')
const ROWS = 1000

export class HandDaemon {
  readonly token = newId(0)
  readonly #world: DeliveryWorld
  readonly #rules: RecordingRules
  readonly #known = new KnownLanes()

  constructor(world: DeliveryWorld, env: Record<string, string> = {}) {
    this.#world = world
    this.#rules = { ...world.config(env), random: () => 0 }
  }

  route(limit = ROWS): Promise<Routed> {
    return routeEvents(this.#world.database.batch, this.#world.clock.now(), limit)
  }

  /** One event by name; its lanes are left to others. */
  routeHinted(eventId: string): Promise<Routed> {
    const taking = { token: this.token, exceptIds: [], most: 0 }
    return routeHinted(this.#world.database.batch, eventId, this.#world.clock.now(), taking)
  }

  take(webhookId: string): Promise<boolean> {
    return takeLane(this.#world.database, webhookId, this.token)
  }

  /** What waits for the webhook, whatever its time. */
  waiting(webhookId: string): Promise<PendingDelivery[]> {
    const times = { now: ALL, until: ALL }
    return listDueDeliveries(this.#world.database.knex, { webhookId, times, after: undefined, limit: ROWS })
  }

  async copyOf(webhookId: string, eventId: string): Promise<PendingDelivery> {
    const copy = (await this.waiting(webhookId)).find((delivery) => delivery.eventId === eventId)
    if (!copy) throw new Error('no such copy')
    return copy
  }

  /** Records that webhooks have answered their copies, together, as the recorder does. */
  record(answers: { copy: PendingDelivery; ok: boolean }[]): Promise<Recorded> {
    const { database, clock } = this.#world
    const results = answers.map(({ copy, ok }) => this.result(copy, ok))
    return recordAttempts(database.batch, this.token, results, clock.now(), this.#rules, false, this.#known)
  }

  /** Discards what a webhook that has gone still has. */
  async discard(webhookId: string): Promise<Discarded> {
    const { database, clock } = this.#world
    const { state, epoch } = await database.knex('webhooks').where({ id: webhookId }).first('state', 'epoch')
    const lane = { webhookId, token: this.token, state, epoch, heldEventIds: [] }
    return database.transaction((trx) => discardOldCopies(trx, lane, clock.now(), ROWS))
  }

  /** What the recorder gets of an attempt. */
  result(copy: PendingDelivery, ok: boolean): AttemptResult {
    return {
      ...attemptedCopy(this.token, copy),
      ok,
      ...{ startedAt: this.#world.clock.now(), durationMs: 5, retryAfterMs: undefined, answer: null },
      class: ok ? 'ok' : 'http_status',
      status: ok ? 200 : 500,
      error: ok ? null : 'HTTP status 500',
    }
  }
}

/** What an attempt's result says of its copy. */
export function attemptedCopy(token: string, copy: PendingDelivery) {
  const { webhookId, eventId, dueAt, place, epoch, isTest, isMessage, attempts, earlyAttempts, queueMoves } = copy
  const n = attempts + 1
  return { token, webhookId, eventId, dueAt, place, epoch, isTest, isMessage, n, earlyAttempts, queueMoves }
}
