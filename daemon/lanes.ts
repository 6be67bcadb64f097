/**
 * The lanes that this daemon owns: taking, running, watching and giving back.
 */
import type { Database } from '../db/connection.ts'
import { monotonicMs, type Clock } from '../src/clock.ts'
import type { Keys } from '../src/crypto.ts'
import type { Recorded } from '../src/deliveries/attempts-repository.ts'
import type { AttemptResult } from '../src/deliveries/recording-rules.ts'
import { discardOldCopies } from '../src/deliveries/old-copies-repository.ts'
import { clearEager, type LaneState } from '../src/deliveries/lanes-repository.ts'
import type { GivenLane } from '../src/events/event-routing.ts'
import { errorFields, type Logger } from '../src/logger.ts'
import type { DeliverySettings } from '../src/webhooks/delivery-settings-repository.ts'
import { atMostEach } from './at-most-each.ts'
import { BrokenLanes } from './broken-lanes.ts'
import { DueReader } from './due-reader.ts'
import { GateSizer, WAITING_SIZE, type GateSize } from './gate-size.ts'
import { Lane, type LaneDeps, type LaneOutcome } from './lane.ts'
import { LaneOwnership, type TakenLane, type TakingAlong, type TakingAnyAlong } from './lane-ownership.ts'
import { LaneReturns } from './lane-returns.ts'
import { LaneViews, type Look } from './lane-views.ts'
import { LeftLanes } from './left-lanes.ts'
import { RequestGates, type GateName } from './request-gates.ts'
import { ReadAhead } from './read-ahead.ts'
import type { WebhookClient } from './webhook-client.ts'

const REFRESH_MS = 250
/** With no lane of its own a daemon looks this often for one that it owns without knowing: the answer to its taking was lost. */
const IDLE_REFRESH_MS = 2000
const DISCARD_ROWS = 500
const NUDGE_ALL_EACH_MS = 100
/** While it stops a daemon gives back so often what has ended: its slowest request may take 10 s more. */
const FREE_EACH_MS = 200
/** For a webhook that has gone and whose own can't be read: nothing is sent, but what waits is to be discarded. */
const NO_SETTINGS: DeliverySettings = { accountId: '', endpoint: '', signingKeys: [] }
/** From here on a dry lane leaves at once instead of listening. */
const CROWDED_LANES = 4000
/** Of one fan-out; the others are offered to whoever has time. */
const MOST_TAKEN_ALONG = 200
/** With more lanes that a fan-out is to leave alone it is told which to take instead. */
const MOST_LEFT_ALONE = 200

/**
 * Requests in flight of this daemon. The second holds every failing and every slow webhook, so its size bounds what they
 * can take; the first is for those that answer at once, and as many as one process can keep busy. Of those that fail or are slow
 * each request may take ten seconds, so each has a turn of its own.
 */
const GATE_SIZES: Record<GateName, GateSize> = { healthy: WAITING_SIZE, retry: { limit: 256, turn: 1 } }

export interface LanesOptions {
  database: Database
  clock: Clock
  keys: Keys
  client: WebhookClient
  log: Logger
  token: () => string
  /** Whether the token is ours for certain: otherwise no lane is taken. */
  isSure: () => boolean
  maxInFlight: number
  afterDeath: () => boolean
  record: (result: AttemptResult) => void
  /** Messages were handed back and are to be sent the normal way. */
  messagesDue: () => void
}

export class Lanes {
  readonly #options: LanesOptions
  readonly #laneDeps: LaneDeps
  readonly #gates = new RequestGates(GATE_SIZES)
  readonly #lanes = new Map<string, Lane>()
  /** Webhooks between the first query of taking and the last of giving back. */
  readonly #busy = new Set<string>()
  readonly #broken = new BrokenLanes()
  readonly #left = new LeftLanes()
  readonly #ownership: LaneOwnership
  readonly #views: LaneViews
  /** Taken by a transaction whose COMMIT is under way: their rows do not say yet that they are ours. */
  readonly #unconfirmed = new Set<string>()
  #timer: NodeJS.Timeout | undefined
  readonly #gateSizer = new GateSizer()
  readonly #due: DueReader
  readonly #returns: LaneReturns
  readonly #nudges = atMostEach(NUDGE_ALL_EACH_MS, () => this.nudge([...this.#lanes.keys()]))
  #stopping = false

  constructor(options: LanesOptions) {
    this.#options = options
    const { database, clock, keys, client, maxInFlight, afterDeath, record, log } = options
    const ownership = new LaneOwnership(database, keys, clock)
    this.#ownership = ownership
    this.#due = new DueReader(database.knex)
    const stopping = () => this.#stopping
    this.#returns = new LaneReturns({ knex: database.knex, ownership, log, token: options.token, stopping })
    this.#views = new LaneViews({
      ...{ database, ownership, log, token: options.token, lanes: this.#lanes },
      unconfirmed: this.#unconfirmed,
      usableSettings: (state, settings) => this.#usableSettings(state, settings),
      lose: (lane) => this.#lose(lane),
      looked: (look) => this.#looked(look),
    })
    this.#laneDeps = {
      knex: database.knex,
      clock,
      client,
      gates: this.#gates,
      readAhead: new ReadAhead(),
      maxInFlight,
      afterDeath,
      slow: new Set(),
      crowded: () => this.#lanes.size > CROWDED_LANES,
      record,
      readDue: (request) => this.#due.read(request),
      discard: (state, heldEventIds) => this.#discard(state, heldEventIds),
      attempted: (result) =>
        log.debug('delivery.attempted', {
          webhookId: result.webhookId,
          eventId: result.eventId,
          attempt: result.n,
          class: result.class,
          status: result.status,
          durationMs: Math.round(result.durationMs),
        }),
    }
  }

  start(): void {
    this.#timer = setInterval(() => void this.#watch(), REFRESH_MS)
  }

  owns(webhookId: string): boolean {
    return this.#busy.has(webhookId)
  }

  get #mayTake(): boolean {
    return !this.#stopping && this.#options.isSure()
  }

  get size(): number {
    return this.#lanes.size
  }

  /** Webhooks that are left alone for a while, because of their settings. */
  broken(): string[] {
    return this.#broken.all()
  }

  /** Requests under way. */
  inFlight(gate: GateName): number {
    return this.#gates.inFlight(gate)
  }

  /** Something may be due for these webhooks. @returns those that are not ours */
  nudge(webhookIds: string[]): string[] {
    return webhookIds.filter((webhookId) => {
      const lane = this.#lanes.get(webhookId)
      lane?.nudge()
      return !lane
    })
  }

  /** Which lanes the fan-out is to take for this daemon. */
  chooseAlong(lanes: GivenLane[], eventIds: string[], copies: number): TakingAlong | undefined {
    if (!this.#mayTake || this.#lanes.size > CROWDED_LANES) return undefined
    const free = lanes.filter(({ webhookId }) => !this.owns(webhookId) && !this.#broken.has(webhookId))
    if (free.length === 0) return undefined
    return this.#ownership.takingAlong(free.slice(0, MOST_TAKEN_ALONG), eventIds, copies, this.#options.token())
  }

  /** The same before it is known which have got something; undefined: that must be known. */
  chooseAnyAlong(): TakingAnyAlong | undefined {
    if (!this.#mayTake || this.#lanes.size > CROWDED_LANES) return undefined
    // One that runs here is ours by its row as well, unless it is about to leave.
    const leaving = [...this.#busy].filter((webhookId) => this.#lanes.get(webhookId)?.isLeaving !== false)
    const exceptIds = [...leaving, ...this.broken()]
    if (exceptIds.length > MOST_LEFT_ALONE) return undefined
    return this.#ownership.takingAnyAlong(exceptIds, this.#options.token(), (webhookId) => !this.owns(webhookId))
  }

  /** They are ours since a fan-out. */
  runTaken(taken: TakenLane[]): void {
    for (const lane of taken) {
      const { webhookId } = lane.state
      // One that was left meanwhile is taken anew: that finds it ours, free or another's.
      const isOld = this.#left.isLeftSince(webhookId, lane.readAtMs)
      void this.run(webhookId, isOld ? undefined : lane)
    }
  }

  /**
   * The same while the COMMIT that takes them is under way: the event that it routes is sent meanwhile. Nobody else has them: whoever
   * wants their rows waits for that COMMIT. Where it fails the event is routed again, and sent again: as after a kill.
   */
  runTakenEarly(taken: TakenLane[]): void {
    for (const { state } of taken) this.#unconfirmed.add(state.webhookId)
    this.runTaken(taken)
  }

  /** That COMMIT has come to its end, and the next look tells whether they are ours. */
  confirm(taken: TakenLane[]): void {
    for (const { state } of taken) this.#unconfirmed.delete(state.webhookId)
  }

  /** Settings of some lane may have changed, and somebody waits until they are read. */
  readSettings(): void {
    if (this.#options.isSure()) void this.#views.refreshAnew()
  }

  /** Asked for more often than that it comes once: whoever can send datagrams must not make every lane read all the time. */
  nudgeAll(): void {
    this.#nudges.ask()
  }

  /**
   * Owns and runs a lane until it is dry. The body of a delivery job.
   * @param known as it was taken, or that its row says already that it is ours (the answer of taking it was lost)
   */
  async run(webhookId: string, known?: TakenLane | 'owned'): Promise<void> {
    if (!this.#mayTake || this.#busy.has(webhookId) || this.#broken.has(webhookId)) return
    this.#busy.add(webhookId)
    const token = this.#options.token()
    try {
      const taken =
        typeof known === 'object' && known.token === token ? known : await this.#take(webhookId, token, known)
      // What was taken under a token that is not ours any more will be freed.
      if (!taken || token !== this.#options.token()) return
      const outcome = await this.#runOwned(taken)
      // When all of them stop, a few statements free them together; each is still due then, and the next owner settles it.
      if (outcome !== 'lost' && !this.#stopping) await this.#returns.giveBack(webhookId, token)
    } catch (error) {
      // Nothing is lost: the row still says that the lane is due, and if it says that it is ours, the next watch finds it.
      this.#options.log.warn('lane.failed', { ...errorFields(error), webhookId })
    } finally {
      this.#busy.delete(webhookId)
      this.#left.add(webhookId)
      if (this.#stopping) this.#returns.ended([webhookId])
    }
  }

  /** Called for each batch of results that is on disk. */
  recorded(results: AttemptResult[], recorded: Recorded): void {
    const told = new Set<Lane>()
    for (const result of results) {
      const lane = this.#lanes.get(result.webhookId)
      if (!lane) continue
      if (!recorded.lostWebhookIds.has(result.webhookId)) {
        lane.recorded(result)
        told.add(lane)
        // A later run, under the same token, has taken the lane anew: what was not recorded stands in its queue.
      } else if (lane === result.run) this.#lose(lane)
    }
    // Behind that: a lane that recovers reads at once, and what it held until now is among what it is to read.
    for (const { webhookId, to } of recorded.healthChanges) {
      this.#options.log.info('webhook.health_changed', { webhookId, state: to })
      if (to === 'auto_deleted') this.#lanes.get(webhookId)?.deactivate()
      else this.#lanes.get(webhookId)?.setFailing(to === 'failing')
    }
    for (const lane of told) lane.pump()
    if (recorded.normalMessages > 0) this.#options.messagesDue()
  }

  /** No repetition records this result: its delivery stays held, and a stop does not wait for it. */
  unrecordable(result: AttemptResult): void {
    this.#lanes.get(result.webhookId)?.abandon()
  }

  /** Another daemon took this one for dead. */
  loseAll(): void {
    for (const lane of this.#lanes.values()) lane.lose()
  }

  /**
   * Starts nothing more. Resolves when every lane has ended; what is in flight has its own deadline. Other daemons need not wait
   * for that: lanes without a request under way are given back meanwhile. The caller frees the last ones with the daemon's row.
   */
  async stop(): Promise<void> {
    this.#stopping = true
    for (const lane of this.#lanes.values()) lane.stop()
    let freedAtMs = -Infinity
    while (this.#busy.size > 0) {
      await new Promise((resolve) => setTimeout(resolve, 10))
      if (monotonicMs() - freedAtMs < FREE_EACH_MS) continue
      await this.#returns.freeEnded((webhookId) => this.#busy.has(webhookId))
      freedAtMs = monotonicMs()
    }
    clearInterval(this.#timer)
    this.#nudges.stop()
    this.#returns.stop()
  }

  /** Each is said, as what it sends twice is to be explained; of a daemon that others took for dead, `daemon.expelled` says all. */
  #lose(lane: Lane): void {
    const underWay = lane.lose()
    if (underWay > 0) this.#options.log.warn('lane.lost', { webhookId: lane.webhookId, deliveries: underWay })
  }

  #take(webhookId: string, token: string, known: TakenLane | 'owned' | undefined): Promise<TakenLane | undefined> {
    return known === 'owned' ? this.#ownership.readOwned(webhookId, token) : this.#ownership.take({ webhookId, token })
  }

  async #runOwned(taken: TakenLane): Promise<LaneOutcome> {
    const { token, state } = taken
    const { webhookId } = state
    const settings = this.#usableSettings(state, taken.settings)
    // One that was still being taken when all were told to stop would otherwise run until it is dry.
    if (!settings || this.#stopping) return 'stopped'
    const lane = new Lane(this.#laneDeps, taken, settings)
    this.#lanes.set(webhookId, lane)
    const outcome = await lane.run().finally(() => this.#lanes.delete(webhookId))
    if (outcome === 'dry' && lane.eager) await clearEager(this.#options.database.knex, webhookId, token)
    return outcome
  }

  /** Undefined: broken, which is said, and its lane is left alone for a while. */
  #usableSettings({ webhookId, state }: LaneState, settings: DeliverySettings | Error): DeliverySettings | undefined {
    if (!(settings instanceof Error)) return settings
    if (state !== 'active') return NO_SETTINGS
    this.#broken.add(webhookId)
    this.#options.log.error('lane.settings_unusable', { ...errorFields(settings), webhookId })
    return undefined
  }

  async #discard(state: LaneState, heldEventIds: string[]): Promise<number> {
    const { database, clock, token } = this.#options
    const lane = { webhookId: state.webhookId, token: token(), epoch: state.epoch, state: state.state, heldEventIds }
    const discarded = await database.transaction((trx) => discardOldCopies(trx, lane, clock.now(), DISCARD_ROWS))
    if (discarded.normalMessages > 0) this.#options.messagesDue()
    return discarded.copies
  }

  async #watch(): Promise<void> {
    this.#gates.resize('healthy', this.#gateSizer.look())
    this.#gates.look()
    this.#due.look()
    for (const lane of this.#lanes.values()) lane.tick()
    // Until others that may be taking it for dead have done so, the lanes' rows say what they said: what was read grows old, and
    // nothing starts.
    if (!this.#options.isSure()) return
    const isIdle = this.#lanes.size === 0 && this.#busy.size === 0
    if (!isIdle || this.#views.ageMs >= IDLE_REFRESH_MS) await this.#views.refresh()
  }

  #looked(look: Look): void {
    for (const webhookId of look.strangers) {
      if (!this.#busy.has(webhookId) && look.token === this.#options.token()) void this.run(webhookId, 'owned')
    }
  }
}
