/**
 * Sends the pending deliveries of one webhook while this daemon owns its lane: reads ahead, keeps a window of requests in
 * flight, hands results to the recorder, and gives the lane back when it is dry.
 */
import { monotonicMs, type Clock } from '../src/clock.ts'
import type { AttemptResult, LaneRun } from '../src/deliveries/recording-rules.ts'
import type { PendingDelivery } from '../src/deliveries/delivery-queue-repository.ts'
import { LANE_VIEW_MAX_AGE_MS, type LaneState } from '../src/deliveries/lanes-repository.ts'
import type { DeliverySettings } from '../src/webhooks/delivery-settings-repository.ts'
import { LaneBacklog, type LaneBacklogDeps } from './lane-backlog.ts'
import { windowOf, type InFlight, type LaneWindow, type LaneWindowDeps } from './lane-window.ts'
import type { GateName, RequestGates } from './request-gates.ts'
import type { TakenLane } from './lane-ownership.ts'
import { attemptResult, SignedRequest } from './signed-delivery.ts'
import type { AttemptOutcome, WebhookClient } from './webhook-client.ts'

/** A dry lane listens so long before it settles, so that a trickle of events does not have it taken anew for each. */
const LISTEN_MS = 1000
/** A lane that may have listened enough in so long counts as one that leaves. */
const LEAVING_MS = 100
const READ_RETRY_MS = 200
/** Later than every retry. */
const EAGER = new Date('9999-01-01T00:00:00Z')

export interface LaneDeps extends LaneBacklogDeps, LaneWindowDeps {
  clock: Clock
  client: WebhookClient
  gates: RequestGates
  /** True when lanes are scarce: a dry one leaves at once. */
  crowded: () => boolean
  record: (result: AttemptResult) => void
  /** Discards a batch of copies of an older epoch, but for those that are held; the number discarded. */
  discard: (state: LaneState, heldEventIds: string[]) => Promise<number>
  attempted: (result: AttemptResult) => void
}

/** How its run ended. */
export type LaneOutcome = 'dry' | 'lost' | 'stopped'

export class Lane implements LaneRun {
  readonly webhookId: string
  readonly #deps: LaneDeps
  readonly #token: string
  #settings: DeliverySettings
  #state: LaneState
  #stateAtMs: number
  #gate: GateName
  readonly #backlog: LaneBacklog
  /** Of those under way, how many can't be recorded. */
  #unrecordable = 0
  readonly #inFlight: LaneWindow
  #readAgainAtMs = -Infinity
  /** When it was told last whether its webhook is failing. */
  #healthAtMs = -Infinity
  /** Copies of an older epoch stand in the queue: to be discarded. */
  #stale: boolean
  #discardedNothing = false
  #reading = false
  #stopping = false
  /** It has been told how its run ended: whoever owns the lane next may be sending already. */
  #over = false
  #lost = false
  #tellEnd: (outcome: LaneOutcome) => void = () => {}

  constructor(deps: LaneDeps, { token, state, readAtMs, head }: TakenLane, settings: DeliverySettings) {
    this.webhookId = state.webhookId
    this.#deps = deps
    this.#backlog = new LaneBacklog(deps, state.webhookId)
    this.#inFlight = windowOf(deps, state.webhookId)
    this.#token = token
    this.#state = state
    this.#stateAtMs = readAtMs
    this.#settings = settings
    this.#gate = state.failing || this.#inFlight.isSlow ? 'retry' : 'healthy'
    this.#stale = state.state !== 'active' || state.cleanEpoch < state.epoch
    // An event from before a deletion, routed after the reactivation, is not to be sent: it is read, and discarded.
    if (head?.every((copy) => copy.epoch === state.epoch) && !this.#stale) this.#backlog.give(head, readAtMs)
  }

  get settingsAt(): Date {
    return this.#state.updatedAt
  }

  /** It reads beyond what is due, since its webhook has recovered. */
  get eager(): boolean {
    return this.#state.eagerUntil !== null
  }

  /** It may be given back at any moment. */
  get isLeaving(): boolean {
    return this.#over || this.#stopping || (this.#idle() && this.#listened(LISTEN_MS - LEAVING_MS))
  }

  /** Runs until nothing is due, the lane is lost, or `stop` was called and everything in flight is recorded. */
  run(): Promise<LaneOutcome> {
    return new Promise((resolve) => {
      this.#tellEnd = resolve
      this.pump()
    })
  }

  #finish(outcome: LaneOutcome): void {
    this.#over = true
    this.#deps.gates.forget(this)
    this.#backlog.drop()
    this.#tellEnd(outcome)
  }

  /** Something may be due. */
  nudge(): void {
    this.#backlog.nudge()
    this.pump()
  }

  /** Starts no further attempt. */
  stop(): void {
    this.#stopping = true
    this.#backlog.ignoreReading()
    this.pump()
  }

  /** Another daemon may own the lane now, or this one anew. @returns so many copies, in flight or unrecorded, are sent again */
  lose(): number {
    if (this.#over) return 0
    const { underWay } = this.#backlog
    this.#lost = true
    this.#finish('lost')
    return underWay
  }

  get isLost(): boolean {
    return this.#lost
  }

  /** @param atMs monotonic time at which the query that read it was sent */
  refresh(state: LaneState, atMs: number, settings?: DeliverySettings): void {
    if (settings) {
      this.#settings = settings
      // Read again too: an erasure asks for it, when copies that were read ahead are not to be sent.
      this.#backlog.drop()
      this.#backlog.wake()
    }
    // A reading that was under way when what came later was written must not bring back what was before.
    if (atMs < this.#stateAtMs) return
    const changed = state.epoch !== this.#state.epoch || state.state !== this.#state.state
    const moved = state.queueMoves !== this.#state.queueMoves
    const { failing, eagerUntil } = this.#state
    // Nor may one from before what was recorded since.
    this.#setState(atMs < this.#healthAtMs ? { ...state, failing, eagerUntil } : state)
    this.#stateAtMs = atMs
    if (this.eager && eagerUntil === null) this.#backlog.nudge()
    if (changed) this.#stale = true
    if (!changed && !moved) return
    // Deleted, or deleted and reactivated, in between: what was read belongs to the epoch before, or stands elsewhere by now.
    this.#backlog.drop()
    this.#backlog.wake()
  }

  /** Called four times a second, also while the database does not answer. */
  tick(): void {
    if (this.#over) return
    this.#chooseGate()
    // One that only listens is not read again: that would begin its time anew, and might do so for ever.
    if (this.#backlog.mayBeEarly || (!this.#idle() && this.#backlog.isHeadDue)) this.#backlog.wake()
    this.pump()
  }

  /** Called when a result of this lane is on disk. The caller pumps when it has told of all. */
  recorded(result: AttemptResult): void {
    const epoch = this.#backlog.recorded(result)
    if (epoch === undefined || epoch >= this.#state.epoch) return
    // One that has failed waits in the queue again: it is discarded now, whatever else is under way.
    this.#stale = true
    this.#backlog.wake()
  }

  /** A result of this lane can't be recorded, ever. */
  abandon(): void {
    this.#unrecordable += 1
    this.pump()
  }

  /** Auto-deleted by what was just recorded: nothing starts any more, and what waits is discarded. */
  deactivate(): void {
    // Where its row has told so before the recorder could, its epoch has been raised already.
    if (this.#state.state === 'active') {
      this.refresh({ ...this.#state, state: 'auto_deleted', epoch: this.#state.epoch + 1 }, monotonicMs())
    }
    this.pump()
  }

  setFailing(failing: boolean): void {
    // What waits for its retry is due at once after a recovery; the next refresh brings the stored value.
    this.#setState({ ...this.#state, failing, eagerUntil: failing ? null : EAGER })
    this.#healthAtMs = monotonicMs()
    this.#chooseGate()
    this.nudge()
  }

  #setState(state: LaneState): void {
    // It fails again: what was read ahead of its time waits for its time.
    if (this.eager && state.eagerUntil === null) this.#backlog.drop()
    this.#state = state
  }

  /** Starts what may start, reads what may be read, and ends the run when nothing is left. */
  pump(): void {
    if (this.#over) return
    while (this.#mayStart()) this.#start(this.#backlog.take())
    const goesOn = this.#goesOn
    if (!goesOn && this.#inFlight.size === 0) this.#deps.gates.forget(this)
    else if (!goesOn) this.#deps.gates.withdraw(this.#gate, this)
    if (this.#stopping) {
      if (this.#inFlight.size === 0 && this.#backlog.underWay === this.#unrecordable) this.#finish('stopped')
      return
    }
    if (this.#reading) return
    if (!this.#readOn() && this.#idle() && this.#listened()) this.#finish('dry')
  }

  /** Its turn is near. */
  prepare(): void {
    if (!this.#over && !this.#stopping && !this.#reading) this.#readOn()
  }

  get isReady(): boolean {
    return this.#backlog.next !== undefined
  }

  /** It has more to send, or more to read. */
  get #goesOn(): boolean {
    return this.#backlog.goesOn && !this.#stopping && !this.#over && this.#state.state === 'active'
  }

  /** @returns whether something is read now */
  #readOn(): boolean {
    // A failed read is repeated on the next tick, not at once.
    if (!this.#backlog.wantsRows() || monotonicMs() < this.#readAgainAtMs) return false
    if (this.#stale) void this.#read(() => this.#discard())
    else if (this.#state.state !== 'active') return false
    else {
      const share = this.#deps.gates.share(this.#gate, this)
      // Asking may have brought its turn near, so that it was told to prepare, and reads.
      if (this.#reading) return true
      if (!this.#backlog.wantsRows(share)) return false
      void this.#read(() => this.#readDue(share))
    }
    return true
  }

  #mayStart(): boolean {
    const { next } = this.#backlog
    if (!next || this.#stopping || this.#isFull) return false
    if (monotonicMs() - this.#stateAtMs > LANE_VIEW_MAX_AGE_MS || !this.#isCurrent(next)) return false
    return this.#deps.gates.tryEnter(this.#gate, this)
  }

  get #isFull(): boolean {
    return this.#inFlight.isFull({ failing: this.#state.failing, recovering: this.eager })
  }

  /** Handed to each reading, and made once for all of them. */
  readonly #isCurrent = (delivery: PendingDelivery): boolean =>
    this.#state.state === 'active' && delivery.epoch === this.#state.epoch

  #idle(): boolean {
    return this.#backlog.isEmpty && this.#inFlight.size === 0 && this.#backlog.dryAtMs !== undefined
  }

  #listened(enoughMs = LISTEN_MS): boolean {
    const { dryAtMs = Infinity } = this.#backlog
    return this.#deps.crowded() || this.#state.state !== 'active' || monotonicMs() - dryAtMs >= enoughMs
  }

  #start(delivery: PendingDelivery): void {
    const { clock, client } = this.#deps
    delivery.queueMoves = this.#state.queueMoves
    const entry = this.#inFlight.start(delivery, clock.now())
    const request = new SignedRequest(this.#settings, delivery, entry.startedAt, clock)
    client.send(request, (outcome) => this.#ended(entry, outcome))
  }

  #ended(entry: InFlight, outcome: AttemptOutcome): void {
    this.#inFlight.ended(entry, outcome)
    this.#deps.gates.leave(this.#gate, this, this.#goesOn)
    const result = attemptResult(this.#token, this, entry.delivery, entry.startedAt, outcome, this.#deps.clock)
    this.#deps.attempted(result)
    if (this.#over) return
    this.#deps.record(result)
    this.#chooseGate()
    this.pump()
  }

  async #read(work: () => Promise<void>): Promise<void> {
    this.#reading = true
    try {
      await work()
    } catch {
      // The database does not answer: the state grows old, nothing starts, and a later tick reads again.
      this.#backlog.forgetPosition()
      this.#readAgainAtMs = monotonicMs() + READ_RETRY_MS
    } finally {
      this.#reading = false
    }
    this.pump()
  }

  async #readDue(share: number): Promise<void> {
    const now = this.#deps.clock.now()
    const times = { now, until: this.#state.eagerUntil ?? now }
    const found = await this.#backlog.read(times, this.#isCurrent, share)
    // They could not be discarded: not read and tried again and again.
    if (found && this.#discardedNothing) this.#readAgainAtMs = monotonicMs() + READ_RETRY_MS
    this.#discardedNothing = false
    if (found) this.#stale = true
  }

  /**
   * Copies of an older epoch go at once, but those that are under way: they go when their attempts have ended, and so does one
   * that was taken as current and that an erasure has put into an older epoch since.
   */
  async #discard(): Promise<void> {
    this.#backlog.forgetPosition()
    // There may be more meanwhile: the webhook is deleted, or an attempt ends.
    this.#stale = false
    let discarded: number
    try {
      discarded = await this.#deps.discard(this.#state, this.#backlog.heldEventIds)
    } catch (error) {
      this.#stale = true
      throw error
    }
    this.#discardedNothing = discarded === 0
    if (discarded > 0) this.#stale = true
    // A webhook that is not active gets nothing new that could be sent.
    else if (!this.#stale && this.#state.state !== 'active') this.#backlog.markDry()
  }

  /** A lane counts as slow or failing until that ends, with everything it has in flight. */
  #chooseGate(): void {
    const gate: GateName = this.#state.failing || this.#inFlight.isSlow ? 'retry' : 'healthy'
    if (gate === this.#gate) return
    const from = this.#gate
    this.#gate = gate
    this.#deps.gates.forget(this)
    this.#deps.gates.move(from, gate, this.#inFlight.size)
  }
}
