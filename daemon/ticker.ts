/**
 * Finds what there is to do and hands it on: routes new events, offers due lanes that nobody owns. It reads levels, so a
 * tick that is missed, doubled or late does no harm.
 */
import type { Database } from '../db/connection.ts'
import { isConnectionFault, isRetriable } from '../db/connection.ts'
import { monotonicMs, type Clock } from '../src/clock.ts'
import type { DueLane } from '../src/deliveries/work-repository.ts'
import { routeEvents, type GivenLane } from '../src/events/event-routing.ts'
import { errorFields, type Logger } from '../src/logger.ts'
import { allowsTwo, FanOutPace, FULL_FAN_OUT } from './fan-out-pace.ts'
import { Foresight } from './foresight.ts'
import { fanOutHinted, type FannedOut } from './hinted-fan-out.ts'
import { LaneOffers } from './lane-offers.ts'
import type { TakenLane, TakingAlong, TakingAnyAlong } from './lane-ownership.ts'
import { WorkFinder } from './work-finder.ts'

const BUSY_TICK_MS = 25
const IDLE_TICK_MS = 250
/** Behind so much time without work it looks for what it was not told of half as often. */
const QUIET_AFTER_MS = 5000
const QUIET_TICK_MS = 500
/** Hints that come faster than this go together: a fan-out of ten events costs little more than one of a single event. */
const HINTED_TICK_MS = 4
/** With that the daemon looks for what it was not told of, while hints that follow each other tell it of the rest. */
const LOOK_EACH_MS = 50
/** So many in one fan-out: they come faster than each is worth one of its own. */
const MANY_EVENTS = 8
/** Behind that the next one lets more come: one of twice as many costs little more. */
const GATHER_MS = 20
const OFFERED_LANES = 200
const FAULT_WAIT_MS = 500

export interface TickerOptions {
  database: Database
  clock: Clock
  log: Logger
  owns: (webhookId: string) => boolean
  offer: (lane: DueLane) => void
  /** Webhooks that are not to be offered now. */
  leftAlone: () => string[]
  /** Which lanes a fan-out is to take for this daemon. */
  chooseAlong: (lanes: GivenLane[], eventIds: string[], copies: number) => TakingAlong | undefined
  /** The same for an event's fan-out in one round trip; undefined: not now. */
  chooseAnyAlong: () => TakingAnyAlong | undefined
  /** Lanes that are this daemon's once the COMMIT that is under way has come through; they are `confirmed` when it has ended. */
  takenEarly: (taken: TakenLane[]) => void
  confirmed: (taken: TakenLane[]) => void
  /** Events were routed. */
  routed: (batch: RoutedBatch) => void
  /** Messages that no webhook gets are to be sent the normal way. */
  messagesDue: () => void
  /** Told at each look for work whether a recovery runs. */
  recovering: (isRunning: boolean) => void
}

export interface RoutedBatch {
  eventIds: string[]
  /** Webhooks that have something due now, but those taken early. */
  webhookIds: string[]
  /** Those of their lanes that are this daemon's since. */
  taken: TakenLane[]
  startedAt: Date
  durationMs: number
}

/** `again`: it was rolled back, and what waited still waits. */
type Outcome = 'routed' | 'again' | 'nothing'

export class Ticker {
  readonly #options: TickerOptions
  readonly #offers: LaneOffers
  readonly #pace = new FanOutPace()
  readonly #work: WorkFinder
  #timer: NodeJS.Timeout | undefined
  #waitMs = BUSY_TICK_MS
  #running: Promise<void> | undefined
  #again = false
  #hinted = false
  /** What the one hint since the last tick has named. */
  #hintedId: string | undefined
  readonly #foresight = new Foresight()
  #started = false
  #stopped = false
  #lastRoundAtMs = monotonicMs()
  #lookedAtMs = -Infinity
  #workedAtMs = monotonicMs()
  /** When the last fan-out of something began. */
  #routedAtMs = -Infinity
  /** No fan-out begins before that. */
  #gatherUntilMs = -Infinity
  /** The last fan-outs were full: many more events wait, most likely. */
  #hasMany = false
  #fullOnes = 0

  constructor(options: TickerOptions) {
    this.#options = options
    this.#offers = new LaneOffers(options)
    this.#work = new WorkFinder(options.database.knex)
  }

  get isStarted(): boolean {
    return this.#started
  }

  /** Nothing wakes it before: lanes that a fan-out takes need the daemon's token. */
  start(): void {
    this.#started = true
    this.wake()
  }

  /** How long ago it last came round, in milliseconds. A tick lasts as long as events wait. */
  get ageMs(): number {
    return monotonicMs() - this.#lastRoundAtMs
  }

  /**
   * Runs a tick now; while one runs, exactly one more follows it.
   * @param hinted somebody says that events wait
   * @param eventId one of them
   */
  wake(hinted = false, eventId?: string): void {
    if (!this.#started || this.#stopped) return
    if (hinted && eventId !== undefined && this.#foresight.covers(eventId)) return
    if (hinted) this.#hint(eventId)
    if (this.#running) {
      this.#again = true
      return
    }
    clearTimeout(this.#timer)
    const earlyMs = this.#mayRouteAtMs - monotonicMs()
    // Looked at again then: a timer goes by when its turn of the event loop began, and is early by what that turn took.
    if (earlyMs > 0) this.#timer = setTimeout(() => this.wake(), earlyMs)
    else this.#begin()
  }

  get #mayRouteAtMs(): number {
    return Math.max(this.#routedAtMs + HINTED_TICK_MS, this.#gatherUntilMs)
  }

  /** An event's transaction is about to end. Where the daemon is not quiet it is told again, when that has ended. */
  foresee(eventId: string): void {
    if (!this.#started || this.#stopped || this.#running || this.#hinted) return
    if (monotonicMs() < this.#mayRouteAtMs || !this.#foresight.begin(eventId)) return
    clearTimeout(this.#timer)
    this.#begin()
  }

  #begin(): void {
    this.#running = this.#run().finally(() => {
      this.#running = undefined
      if (this.#stopped) return
      if (this.#again) {
        this.#again = false
        this.wake()
      } else this.#timer = setTimeout(() => this.wake(), this.#waitMs)
    })
  }

  async stop(): Promise<void> {
    this.#stopped = true
    clearTimeout(this.#timer)
    await this.#running
  }

  async #run(): Promise<void> {
    try {
      const worked = await this.#tick()
      this.#lastRoundAtMs = monotonicMs()
      if (worked) this.#workedAtMs = this.#lastRoundAtMs
      const isQuiet = this.#lastRoundAtMs - this.#workedAtMs > QUIET_AFTER_MS
      this.#waitMs = worked ? BUSY_TICK_MS : Math.min(this.#waitMs * 2, isQuiet ? QUIET_TICK_MS : IDLE_TICK_MS)
    } catch (error) {
      this.#waitMs = FAULT_WAIT_MS
      this.#options.log.warn('tick.failed', errorFields(error))
    }
  }

  /** @returns whether there was anything to do */
  async #tick(): Promise<boolean> {
    const { clock } = this.#options
    let worked = false
    if (this.#foresight.eventId !== undefined) {
      worked = await this.#routeForeseen(this.#foresight.eventId)
      // Whoever tells of its end finds no tick under way that looks for it in vain.
      if (!worked && !this.#hinted) return false
    }
    // Whoever is told of an event need not look for one first: a quiet webhook's only one waits for each round trip.
    let wasHinted = false
    if (!worked) {
      const eventId = this.#hintedId
      wasHinted = this.#hinted
      this.#hinted = false
      this.#hintedId = undefined
      worked = eventId !== undefined && (await this.#routeHinted(eventId)) !== 'nothing'
    }
    // Its lanes' requests come first. The tick behind this one looks, or at the latest one of those that hints bring on.
    if (worked && monotonicMs() - this.#lookedAtMs < LOOK_EACH_MS) return true
    if (wasHinted && !worked) worked = await this.#route()
    while (!this.#stopped) {
      // They stay due, and would take the places of all others.
      const leftAlone = new Set(this.#options.leftAlone())
      this.#lookedAtMs = monotonicMs()
      const work = await this.#work.find(clock.now(), OFFERED_LANES + leftAlone.size)
      const dueLanes = work.dueLanes.filter(({ webhookId }) => !leftAlone.has(webhookId))
      this.#offers.offer(dueLanes)
      this.#options.recovering(work.recovering)
      // Where events are stepped over, some always wait.
      worked ||= (work.unrouted && !this.#pace.hasAside) || dueLanes.length > 0
      if (!work.unrouted || this.#stopped) break
      await this.#gather()
      if (this.#stopped) break
      if (!(await this.#routeSome())) break
      worked = true
      this.#lastRoundAtMs = monotonicMs()
    }
    return worked
  }

  async #gather(): Promise<void> {
    while (monotonicMs() < this.#gatherUntilMs) {
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, this.#gatherUntilMs - monotonicMs())))
    }
  }

  /**
   * One fan-out, or two at once where the last ones were full: one inserts while the other waits for its COMMIT. The two take no
   * lanes: what one would read of a lane as all that is due there lacks what the other gives it. Who looks for work next finds
   * them.
   */
  async #routeSome(): Promise<boolean> {
    this.#fullOnes = 0
    const fanOuts = this.#hasMany ? [this.#route(true), this.#route(true)] : [this.#route()]
    const ended = await Promise.allSettled(fanOuts)
    // After one that failed one after the other, until it is known which event is to blame.
    this.#hasMany = this.#fullOnes === fanOuts.length
    const failed = ended.find((one) => one.status === 'rejected')
    if (failed) throw failed.reason
    return ended.some((one) => one.status === 'fulfilled' && one.value)
  }

  /** @returns whether there may be more, or lanes to offer */
  async #route(isOneOfTwo = false): Promise<boolean> {
    const { database, chooseAlong } = this.#options
    const startedAtMs = monotonicMs()
    const { limit, exceptIds } = this.#pace.next(startedAtMs)
    let batch: string[] = []
    try {
      const outcome = await this.#fanOut(async (startedAt) => {
        let along: TakingAlong | undefined
        const routed = await routeEvents(
          database.batch,
          startedAt,
          limit,
          // A daemon that stops takes nothing more: others may, as soon as what they have got is on disk.
          (...given) => (along = this.#stopped || isOneOfTwo ? undefined : chooseAlong(...given)),
          { exceptIds, locked: (eventIds) => (batch = eventIds) },
        )
        batch = []
        const durationMs = monotonicMs() - startedAtMs
        if (allowsTwo(routed.events, durationMs)) this.#fullOnes += 1
        // Where there was nothing, what failed may still be locked: its statement goes on after its connection has ended.
        if (routed.events > 0) this.#pace.succeeded(durationMs)
        return { ...routed, taken: along?.read(routed.taken) ?? [] }
      })
      return outcome !== 'nothing'
    } catch (error) {
      if (batch.length === 0) throw error
      return this.#failed(batch, error)
    }
  }

  /** @returns whether to go on at once @throws the error, when to wait */
  #failed(batch: string[], error: unknown): true {
    const { log } = this.#options
    const eventId = this.#pace.failed(batch, monotonicMs(), isConnectionFault(error))
    // Until somebody does, it is tried once a minute, beside the others.
    if (eventId !== undefined) log.error('event.routing_failed', { ...errorFields(error), eventId })
    // A batch that takes too long for the database ends with its connection, as does one while the database goes.
    if (isConnectionFault(error) || !this.#pace.isHopeful) throw error
    return true
  }

  async #routeForeseen(eventId: string): Promise<boolean> {
    let isRouted = false
    try {
      isRouted = (await this.#routeHinted(eventId, true)) === 'routed'
    } finally {
      this.#foresight.end(isRouted)
      // Who told of that did so while it was looked for.
      if (!isRouted && this.#foresight.isCommitted) this.#hint(eventId)
    }
    return isRouted
  }

  #hint(eventId: string | undefined): void {
    this.#hintedId = this.#hinted ? undefined : eventId
    this.#hinted = true
  }

  /**
   * One event alone, which somebody says is waiting.
   * @param isForetold its copies are sent when somebody says that it is committed, or when the fan-out's own COMMIT has come through
   */
  async #routeHinted(eventId: string, isForetold = false): Promise<Outcome> {
    const { database, chooseAnyAlong, takenEarly, confirmed } = this.#options
    const along = chooseAnyAlong()
    if (!along) return 'nothing'
    const whenCommitted = (tell: () => void) => (isForetold ? this.#foresight.whenCommitted(tell) : tell())
    const hinted = { eventId, isForetold, whenCommitted, along, takenEarly, confirmed }
    return this.#fanOut((startedAt) => fanOutHinted(database, hinted, startedAt))
  }

  async #fanOut(work: (startedAt: Date) => Promise<FannedOut>): Promise<Outcome> {
    const { clock, log, owns, routed, messagesDue } = this.#options
    try {
      const startedAt = clock.now()
      const startedAtMs = monotonicMs()
      const { events, eventIds, webhookIds, normalMessages, taken, takenEarly } = await work(startedAt)
      if (events === 0) return 'nothing'
      this.#routedAtMs = startedAtMs
      // A backlog waits for nothing.
      const comeFast = events >= MANY_EVENTS && events < FULL_FAN_OUT / 2
      this.#gatherUntilMs = comeFast ? monotonicMs() + GATHER_MS : -Infinity
      const durationMs = Math.round(monotonicMs() - startedAtMs)
      log.info('event.routed', { events, lanes: webhookIds.length, durationMs })
      const others = takenEarly ? webhookIds.filter((webhookId) => !takenEarly.has(webhookId)) : webhookIds
      routed({ eventIds, webhookIds: others, taken, startedAt, durationMs })
      // Lanes that nobody may have are to be offered at once.
      if (!webhookIds.every(owns)) this.#lookedAtMs = -Infinity
      if (normalMessages > 0) messagesDue()
      return 'routed'
    } catch (error) {
      // Another daemon or a deletion was in the way: everything was rolled back, and the events still wait: to be looked for now.
      if (!isRetriable(error)) throw error
      this.#lookedAtMs = -Infinity
      return 'again'
    }
  }
}
