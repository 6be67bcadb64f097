/**
 * This daemon's row and its view of the others. A beat that has not moved for 5 s on our own monotonic clock means that its
 * daemon is dead; then its lanes are free. No clock time and no lease decides anything.
 */
import type { Database } from '../db/connection.ts'
import { monotonicMs, type Clock } from '../src/clock.ts'
import {
  findDaemons,
  insertDaemon,
  raiseBeat,
  removeDaemon,
  retireDaemon,
  type DaemonRow,
} from '../src/deliveries/daemons-repository.ts'
import { newId } from '../src/ids.ts'
import { errorFields, type Logger } from '../src/logger.ts'

const BEAT_MS = 1000
const DEAD_AFTER_MS = 5000
/**
 * After so long without a beat of our own that went through, others may have buried us: nothing is taken until one does. What was
 * taken under a token that is no more would be sent, could not be recorded, and would be sent again.
 */
const SURE_MS = DEAD_AFTER_MS - BEAT_MS
/**
 * A longer time without a look of our own counts as one missed beat: while the database did not answer nobody's beat could
 * move. It counts for something, or a daemon that is always so slow would never see one die.
 */
const LOOK_GAP_MS = 3000
/** A beat that has missed so much may be a dead one's: whoever looked a moment later takes its lanes first. */
const SILENT_AFTER_MS = 3 * BEAT_MS
/** For so long after a death lanes are taken that the dead one had. */
const AFTER_DEATH_MS = 15_000

export interface MembershipOptions {
  database: Database
  clock: Clock
  log: Logger
  hintHost: string
  hintPort: number
  /** Another daemon took us for dead: everything owned under the old token is lost. */
  onExpelled: () => void
  /** Lanes of a dead daemon are free. */
  onFreed: (deadToken: string) => void
}

export class Membership {
  readonly #options: MembershipOptions
  readonly #seen = new Map<string, { beat: number; silentMs: number }>()
  #lookedAtMs = -Infinity
  #token = ''
  #others: DaemonRow[] = []
  #timer: NodeJS.Timeout | undefined
  #beating = false
  #left = false
  #deathSeenAtMs = -Infinity
  /** Monotonic: when the last beat that went through was sent. */
  #beatenAtMs = -Infinity

  constructor(options: MembershipOptions) {
    this.#options = options
  }

  /** Fences every write of this daemon. */
  get token(): string {
    return this.#token
  }

  /** Nobody can have taken us for dead yet. */
  get isSure(): boolean {
    return monotonicMs() - this.#beatenAtMs < SURE_MS
  }

  /** A daemon has died a moment ago, or was taken for dead: it may have had a full window of each lane in flight. */
  get hasSeenDeath(): boolean {
    return monotonicMs() - this.#deathSeenAtMs < AFTER_DEATH_MS
  }

  get others(): DaemonRow[] {
    return this.#others
  }

  async join(): Promise<void> {
    await this.#register()
    this.#timer = setInterval(() => void this.#beat(), BEAT_MS)
  }

  /** Frees the lanes at once; the next daemon goes on without waiting for a silent beat. */
  async leave(): Promise<void> {
    this.#left = true
    clearInterval(this.#timer)
    await this.#retire()
  }

  async #retire(): Promise<void> {
    await this.#options.database.transaction((trx) => retireDaemon(trx, this.#token))
  }

  async #register(): Promise<void> {
    const { database, clock, hintHost, hintPort } = this.#options
    const token = newId(clock.nowMs())
    const sentAtMs = monotonicMs()
    await insertDaemon(database.knex, { token, hintHost, hintPort }, clock.now())
    this.#token = token
    this.#beatenAtMs = sentAtMs
  }

  async #beat(): Promise<void> {
    if (this.#beating) return
    this.#beating = true
    try {
      const sentAtMs = monotonicMs()
      const alive = await raiseBeat(this.#options.database.knex, this.#token)
      this.#beatenAtMs = alive ? sentAtMs : -Infinity
      // Its row has gone because it has left: a new one would have others tell a process that has ended.
      if (this.#left) return
      if (!alive) {
        this.#options.log.warn('daemon.expelled', { daemon: this.#token })
        this.#deathSeenAtMs = monotonicMs()
        this.#options.onExpelled()
        await this.#register()
        // Also what was taken meanwhile, under the token of before.
        this.#options.onExpelled()
        if (this.#left) return await this.#retire()
      }
      await this.#observe()
    } catch (error) {
      this.#options.log.warn('daemon.beat_failed', errorFields(error))
    } finally {
      this.#beating = false
    }
  }

  async #observe(): Promise<void> {
    const { daemons, lostOwners } = await findDaemons(this.#options.database.knex, [this.#token, ...this.#seen.keys()])
    const rows = daemons.filter((row) => row.token !== this.#token)
    const nowMs = monotonicMs()
    const gapMs = nowMs - this.#lookedAtMs
    this.#lookedAtMs = nowMs
    const known = new Set(rows.map((row) => row.token))
    for (const token of this.#seen.keys()) if (!known.has(token)) this.#seen.delete(token)
    for (const row of rows) {
      const seen = this.#seen.get(row.token)
      if (!seen || seen.beat !== row.beat) this.#seen.set(row.token, { beat: row.beat, silentMs: 0 })
      else {
        seen.silentMs += gapMs > LOOK_GAP_MS ? BEAT_MS : gapMs
        if (seen.silentMs >= SILENT_AFTER_MS) this.#deathSeenAtMs = nowMs
        if (seen.silentMs > DEAD_AFTER_MS) await this.#bury(row, seen.silentMs)
      }
    }
    this.#others = rows
    for (const token of lostOwners) await this.#freeLanesOf(token)
  }

  async #freeLanesOf(lostOwner: string): Promise<void> {
    this.#deathSeenAtMs = monotonicMs()
    const lanes = await this.#options.database.transaction((trx) => retireDaemon(trx, lostOwner))
    this.#options.log.warn('daemon.lost_lanes_freed', { daemon: lostOwner, lanes, by: this.#token })
    this.#options.onFreed(lostOwner)
  }

  async #bury({ token, beat, hintHost, hintPort }: DaemonRow, silentMs: number): Promise<void> {
    const lanes = await this.#options.database.transaction((trx) => removeDaemon(trx, token, beat))
    if (lanes === undefined) return
    this.#options.log.warn('daemon.dead', {
      daemon: token,
      host: hintHost,
      port: hintPort,
      lanes,
      durationMs: Math.round(silentMs),
      by: this.#token,
    })
    this.#options.onFreed(token)
  }
}
