/**
 * The requests of one lane that are in flight, and how many there may be: two at first, twice as many with each success, up to what
 * its endpoint is to have at once. After the death of a daemon as many at first as that one may have had: they are to be sent again soon.
 */
import { monotonicMs } from '../src/clock.ts'
import { LinkedLine, type Linked } from '../src/linked-line.ts'
import type { PendingDelivery } from '../src/deliveries/delivery-queue-repository.ts'
import type { AttemptOutcome } from './webhook-client.ts'

/** A request that is unanswered for so long makes its lane a slow one, and it stays one until it is answered sooner. */
const SLOW_AFTER_MS = 1000
const FIRST_WINDOW = 2
const FAILING_WINDOW = 2
/** Of an endpoint that has just come back, whatever it can be sent otherwise. Source: decisions 5. */
const RECOVERY_WINDOW = 10

export interface InFlight extends Linked<InFlight> {
  delivery: PendingDelivery
  startedAt: Date
  startedAtMs: number
}

export interface LaneWindowDeps {
  maxInFlight: number
  /** A daemon has died, and what it had in flight of a lane is to be sent again. */
  afterDeath: () => boolean
  /** Webhooks whose last answer took long: the next one will, also in a later run of their lanes. */
  slow: Set<string>
}

/** More than ever are slow at once. */
const MOST_SLOW = 20_000

export function windowOf({ maxInFlight, afterDeath, slow }: LaneWindowDeps, webhookId: string): LaneWindow {
  return new LaneWindow(maxInFlight, afterDeath() ? maxInFlight : FIRST_WINDOW, { webhookId, slow })
}

export class LaneWindow {
  readonly #maxInFlight: number
  readonly #webhookId: string
  readonly #slow: Set<string>
  /** In the order in which they were started. */
  readonly #inFlight = new LinkedLine<InFlight>()
  #window: number

  constructor(maxInFlight: number, first = FIRST_WINDOW, of = { webhookId: '', slow: new Set<string>() }) {
    this.#maxInFlight = maxInFlight
    this.#window = first
    this.#webhookId = of.webhookId
    this.#slow = of.slow
  }

  get size(): number {
    return this.#inFlight.size
  }

  /** @param recovering what waits for a later retry is sent before its time */
  isFull({ failing, recovering }: { failing: boolean; recovering: boolean }): boolean {
    const most = failing ? FAILING_WINDOW : recovering ? RECOVERY_WINDOW : this.#maxInFlight
    return this.size >= Math.min(this.#window, most, this.#maxInFlight)
  }

  /** The oldest has been unanswered for long, or the last one was. */
  get isSlow(): boolean {
    if (this.#slow.has(this.#webhookId)) return true
    const oldest = this.#inFlight.first
    return oldest !== undefined && monotonicMs() - oldest.startedAtMs >= SLOW_AFTER_MS
  }

  start(delivery: PendingDelivery, startedAt: Date): InFlight {
    const startedAtMs = monotonicMs()
    const entry: InFlight = { delivery, startedAt, startedAtMs, line: undefined, previous: undefined, next: undefined }
    this.#inFlight.add(entry)
    return entry
  }

  ended(entry: InFlight, { ok, durationMs }: AttemptOutcome): void {
    this.#inFlight.remove(entry)
    if (durationMs >= SLOW_AFTER_MS) this.#remember()
    else this.#slow.delete(this.#webhookId)
    this.#window = ok ? Math.min(this.#window * 2, this.#maxInFlight) : FIRST_WINDOW
  }

  #remember(): void {
    if (this.#slow.size >= MOST_SLOW) this.#slow.clear()
    this.#slow.add(this.#webhookId)
  }
}
