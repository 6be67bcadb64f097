/**
 * Sends the pending deliveries of one webhook while this daemon owns its lane: reads ahead, keeps a window of requests in
 * flight, hands results to the recorder, and gives the lane back when it is dry.
 */
import type { Knex } from 'knex'
import { monotonicMs, type Clock } from '../src/clock.ts'
import type { AttemptResult } from '../src/deliveries/recording-rules.ts'
import {
  type HeadRequest,
  listDueDeliveries,
  listWaitingUpTo,
  type PendingDelivery,
  type QueuePosition,
} from '../src/deliveries/delivery-queue-repository.ts'
import { LANE_VIEW_MAX_AGE_MS, type LaneState } from '../src/deliveries/lanes-repository.ts'
import type { DeliverySettings } from '../src/webhooks/delivery-settings-repository.ts'
import type { ReadAhead } from './read-ahead.ts'
import type { GateName, RequestGates } from './request-gates.ts'
import type { TakenLane } from './lane-ownership.ts'
import { attemptResult, signedRequest } from './signed-delivery.ts'
import type { AttemptOutcome, WebhookClient } from './webhook-client.ts'

/** A request that is unanswered for so long makes its lane a slow one. */
const SLOW_AFTER_MS = 1000
const FIRST_WINDOW = 2
const FAILING_WINDOW = 2
/** Reading goes on behind what was read last, but from the head at least so often: ids don't commit in order. */
const HEAD_READ_MS = 1000
/** A dry lane listens so long before it settles, so that a trickle of events costs no new job each. */
const LISTEN_MS = 1000
/** A lane reads so many rows, and twice as many each time it had nothing left to send before they came, or there is room. */
const FIRST_READ_ROWS = 50
const MOST_READ_ROWS = 800
/** Reads of so few rows go together with those of other lanes; a longer one would keep them waiting. */
const MOST_SHARED_ROWS = 100
const READ_RETRY_MS = 200
/** Later than every retry. */
const EAGER = new Date('9999-01-01T00:00:00Z')

export interface LaneDeps {
  knex: Knex
  clock: Clock
  client: WebhookClient
  gates: RequestGates
  readAhead: ReadAhead
  userAgent: string
  maxInFlight: number
  /** True when lanes are scarce: a dry one leaves at once. */
  crowded: () => boolean
  record: (result: AttemptResult) => void
  /** Reads the head of the queue, together with other lanes that want to in this moment. */
  readHead: (request: HeadRequest) => Promise<PendingDelivery[]>
  /** Discards a batch of copies of an older epoch; the number discarded. */
  discard: (state: LaneState) => Promise<number>
  attempted: (result: AttemptResult) => void
}

interface InFlight {
  delivery: PendingDelivery
  startedAtMs: number
}

export class Lane {
  readonly webhookId: string
  readonly #deps: LaneDeps
  readonly #token: string
  #settings: DeliverySettings
  #state: LaneState
  #stateAtMs: number
  #gate: GateName
  #window = FIRST_WINDOW
  #readRows = FIRST_READ_ROWS
  #buffer: PendingDelivery[] = []
  /** Events in the buffer, in flight, or not yet recorded, with their epoch: a read from the head leaves them out. */
  readonly #held = new Map<string, number>()
  /** Recorded while a read is under way: its view may be older, and would show them as pending still. */
  readonly #recordedDuringRead = new Set<string>()
  /** Of those held, how many can't be recorded. */
  #unrecordable = 0
  readonly #inFlight = new Set<InFlight>()
  /** Up to here the queue was read; what has come before it since is seen by a look at the head. */
  #position: QueuePosition | undefined
  /** Raised when what was read ahead is dropped: a reading under way then does not count. */
  #generation = 0
  #headReadAtMs = -Infinity
  #readAgainAtMs = -Infinity
  /** When a read from the head found nothing new; undefined: there may be more. */
  #dryAtMs: number | undefined
  /** Copies of an older epoch stand in the queue: to be discarded. */
  #stale: boolean
  #reading = false
  #nudged = false
  #stopping = false
  #lost = false
  #finish: (outcome: 'dry' | 'lost' | 'stopped') => void = () => {}

  constructor(deps: LaneDeps, { token, state, readAtMs, head }: TakenLane, settings: DeliverySettings) {
    this.webhookId = state.webhookId
    this.#deps = deps
    this.#token = token
    this.#state = state
    this.#stateAtMs = readAtMs
    this.#settings = settings
    this.#gate = state.failing ? 'retry' : 'healthy'
    this.#stale = state.state !== 'active' || state.cleanEpoch < state.epoch
    if (!head || this.#stale) return
    this.#headReadAtMs = readAtMs
    this.#accept(head, true, true)
  }

  get settingsAt(): Date {
    return this.#state.updatedAt
  }

  /** It reads beyond what is due, since its webhook has recovered. */
  get eager(): boolean {
    return this.#state.eagerUntil !== null
  }

  /** Runs until nothing is due, the lane is lost, or `stop` was called and everything in flight is recorded. */
  run(): Promise<'dry' | 'lost' | 'stopped'> {
    return new Promise((resolve) => {
      this.#finish = (outcome) => {
        this.#deps.gates.forget(this)
        this.#dropBuffer()
        resolve(outcome)
      }
      this.pump()
    })
  }

  /** Something may be due. */
  nudge(): void {
    this.#nudged = true
    this.#dryAtMs = undefined
    this.pump()
  }

  /** Starts no further attempt. */
  stop(): void {
    this.#stopping = true
    this.pump()
  }

  /** Another daemon may own the lane now. What is in flight ends by itself; its results will be dropped. */
  lose(): void {
    if (this.#lost) return
    this.#lost = true
    this.#finish('lost')
  }

  /** @param atMs monotonic time at which the query that read it was sent */
  refresh(state: LaneState, atMs: number, settings?: DeliverySettings): void {
    if (settings) {
      this.#settings = settings
      // Read again too: an erasure asks for it, when copies that were read ahead are not to be sent.
      this.#dropBuffer()
      this.#dryAtMs = undefined
    }
    // A reading that was under way when what came later was written must not bring back what was before.
    if (atMs < this.#stateAtMs) return
    const changed = state.epoch !== this.#state.epoch || state.state !== this.#state.state
    this.#state = state
    this.#stateAtMs = atMs
    if (changed) {
      // Deleted, or deleted and reactivated, in between: what was read belongs to the epoch before.
      this.#dropBuffer()
      this.#stale = true
      this.#dryAtMs = undefined
    }
  }

  /** Called four times a second, also while the database does not answer. */
  tick(): void {
    if (this.#lost) return
    this.#chooseGate()
    const isOver = this.#idle() && this.#listened()
    if (!isOver && monotonicMs() - this.#headReadAtMs >= HEAD_READ_MS) this.#dryAtMs = undefined
    this.pump()
  }

  /** Called when a result of this lane is on disk. The caller pumps when it has told of all. */
  recorded(result: AttemptResult): void {
    this.#held.delete(result.eventId)
    if (this.#reading) this.#recordedDuringRead.add(result.eventId)
  }

  /** A result of this lane can't be recorded, ever. */
  abandon(): void {
    this.#unrecordable += 1
    this.pump()
  }

  /** Auto-deleted by what was just recorded: nothing starts any more, and what waits is discarded. */
  deactivate(): void {
    this.refresh({ ...this.#state, state: 'auto_deleted', epoch: this.#state.epoch + 1 }, monotonicMs())
    this.pump()
  }

  setFailing(failing: boolean): void {
    // What waits for its retry is due at once after a recovery; the next refresh brings the stored value.
    this.#state = { ...this.#state, failing, eagerUntil: failing ? null : EAGER }
    this.#chooseGate()
    this.nudge()
  }

  /** Starts what may start, reads what may be read, and ends the run when nothing is left. */
  pump(): void {
    if (this.#lost) return
    while (this.#mayStart()) this.#start(this.#buffer.shift()!)
    if (this.#stopping) {
      const unrecorded = this.#held.size - this.#buffer.length - this.#unrecordable
      if (this.#inFlight.size === 0 && unrecorded === 0) this.#finish('stopped')
      return
    }
    if (this.#reading) return
    if (this.#wantsRows()) void this.#read()
    else if (this.#idle() && this.#listened()) this.#finish('dry')
  }

  #wantsRows(): boolean {
    if (this.#dryAtMs !== undefined || this.#buffer.length >= this.#readRows / 2) return false
    // A failed read is repeated on the next tick, not at once.
    if (monotonicMs() < this.#readAgainAtMs) return false
    // Nothing but discarding is left to do, and that waits for what is under way.
    return this.#state.state === 'active' || (this.#stale && !this.#oldUnderWay())
  }

  #mayStart(): boolean {
    const next = this.#buffer[0]
    if (!next || this.#stopping || this.#inFlight.size >= this.#limit()) return false
    if (monotonicMs() - this.#stateAtMs > LANE_VIEW_MAX_AGE_MS || !this.#isCurrent(next)) return false
    return this.#deps.gates.tryEnter(this.#gate, this)
  }

  #isCurrent(delivery: PendingDelivery): boolean {
    return this.#state.state === 'active' && delivery.epoch === this.#state.epoch
  }

  #oldUnderWay(): boolean {
    for (const epoch of this.#held.values()) if (epoch < this.#state.epoch) return true
    return false
  }

  #limit(): number {
    return this.#state.failing
      ? Math.min(FAILING_WINDOW, this.#deps.maxInFlight)
      : Math.min(this.#window, this.#deps.maxInFlight)
  }

  #idle(): boolean {
    return this.#held.size === 0 && this.#inFlight.size === 0 && this.#dryAtMs !== undefined
  }

  #listened(): boolean {
    return this.#deps.crowded() || this.#state.state !== 'active' || monotonicMs() - this.#dryAtMs! >= LISTEN_MS
  }

  #start(delivery: PendingDelivery): void {
    const entry: InFlight = { delivery, startedAtMs: monotonicMs() }
    this.#inFlight.add(entry)
    this.#deps.readAhead.release(delivery.body.length)
    const startedAt = this.#deps.clock.now()
    void this.#deps.client
      .post(signedRequest(this.#settings, delivery, startedAt, this.#deps.userAgent))
      .then((outcome) => this.#ended(entry, startedAt, outcome))
  }

  #ended(entry: InFlight, startedAt: Date, outcome: AttemptOutcome): void {
    this.#inFlight.delete(entry)
    this.#deps.gates.leave(this.#gate)
    const result = attemptResult(this.#token, entry.delivery, startedAt, outcome, this.#deps.clock.now())
    this.#deps.attempted(result)
    this.#window =
      outcome.ok && outcome.durationMs < SLOW_AFTER_MS
        ? Math.min(this.#window * 2, this.#deps.maxInFlight)
        : FIRST_WINDOW
    // Recorded even when the lane was lost: the write is fenced by the token and drops it there.
    this.#deps.record(result)
    if (this.#lost) return
    this.#chooseGate()
    this.pump()
  }

  async #read(): Promise<void> {
    this.#reading = true
    this.#recordedDuringRead.clear()
    try {
      if (this.#stale && !this.#oldUnderWay()) await this.#discard()
      else await this.#readDue()
    } catch {
      // The database does not answer: the state grows old, nothing starts, and a later tick reads again.
      this.#position = undefined
      this.#readAgainAtMs = monotonicMs() + READ_RETRY_MS
    } finally {
      this.#reading = false
    }
    this.pump()
  }

  async #readDue(): Promise<void> {
    const nowMs = monotonicMs()
    const generation = this.#generation
    const until = this.#state.eagerUntil ?? this.#deps.clock.now()
    const headIsDue = this.#nudged || nowMs - this.#headReadAtMs >= HEAD_READ_MS
    this.#nudged = false
    let after = this.#position
    if (after && headIsDue && !(await this.#holdsAllUpTo(after, until))) after = undefined
    const sawHead = headIsDue || after === undefined
    // What is held stands at the head of the queue until it is recorded: read past it.
    const limit = this.#deps.readAhead.rows(this.#readRows) + (after ? 0 : this.#held.size)
    const read =
      after || limit > MOST_SHARED_ROWS
        ? await listDueDeliveries(this.#deps.knex, this.webhookId, until, after, limit)
        : await this.#deps.readHead({ webhookId: this.webhookId, until, limit })
    // What was dropped meanwhile may have been dropped for what this reading did not see yet.
    if (this.#lost || this.#stopping || generation !== this.#generation) return
    if (sawHead) this.#headReadAtMs = nowMs
    if (read.length >= this.#readRows && (this.#buffer.length === 0 || this.#deps.readAhead.isRoomy)) {
      this.#readRows = Math.min(this.#readRows * 2, MOST_READ_ROWS)
    }
    this.#accept(read, sawHead, read.length < limit)
  }

  /** Whether nothing stands before the position but what is held: then the head need not be read with all its bodies. */
  async #holdsAllUpTo(position: QueuePosition, until: Date): Promise<boolean> {
    if (this.#held.size < FIRST_READ_ROWS / 2) return false
    const waiting = await listWaitingUpTo(this.#deps.knex, this.webhookId, until, position, this.#held.size + 1)
    return waiting.every((eventId) => this.#held.has(eventId) || this.#recordedDuringRead.has(eventId))
  }

  #accept(read: PendingDelivery[], sawHead: boolean, exhausted: boolean): void {
    const last = read.at(-1)
    if (last) this.#position = { dueAt: last.dueAt, eventId: last.eventId }
    const fresh = read.filter(({ eventId }) => !this.#held.has(eventId) && !this.#recordedDuringRead.has(eventId))
    for (const delivery of fresh) {
      if (!this.#isCurrent(delivery)) {
        this.#stale = true
        continue
      }
      this.#held.set(delivery.eventId, delivery.epoch)
      this.#deps.readAhead.take(delivery.body.length)
      this.#buffer.push(delivery)
    }
    if (!exhausted) return
    // Only with a look at the head can be said that nothing is left. What comes now nudges, or is found when the lane settles.
    if (sawHead && !this.#stale && !this.#nudged) this.#dryAtMs = monotonicMs()
    else this.#headReadAtMs = -Infinity
  }

  /** Copies of an older epoch go once none of them is under way any more. */
  async #discard(): Promise<void> {
    this.#position = undefined
    if ((await this.#deps.discard(this.#state)) > 0) return
    this.#stale = false
    // A webhook that is not active gets nothing new that could be sent.
    if (this.#state.state !== 'active') this.#dryAtMs = monotonicMs()
  }

  /** A lane counts as slow or failing until that ends, with everything it has in flight. */
  #chooseGate(): void {
    const [oldest] = this.#inFlight
    const slow = oldest !== undefined && monotonicMs() - oldest.startedAtMs >= SLOW_AFTER_MS
    const gate: GateName = this.#state.failing || slow ? 'retry' : 'healthy'
    if (gate === this.#gate) return
    const from = this.#gate
    this.#gate = gate
    this.#deps.gates.forget(this)
    this.#deps.gates.move(from, gate, this.#inFlight.size)
  }

  #dropBuffer(): void {
    for (const delivery of this.#buffer) {
      this.#held.delete(delivery.eventId)
      this.#deps.readAhead.release(delivery.body.length)
    }
    this.#buffer = []
    this.#position = undefined
    this.#generation += 1
  }
}
