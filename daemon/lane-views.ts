/**
 * What the lanes that run here know of their rows, read anew four times a second: whether they are still ours, the health of their
 * webhooks, and settings that have changed. A lane whose view has grown old starts nothing.
 */
import type { Database } from '../db/connection.ts'
import { monotonicMs } from '../src/clock.ts'
import { confirmSettingsRead, listOwnedLanes, type LaneState } from '../src/deliveries/lanes-repository.ts'
import { errorFields, type Logger } from '../src/logger.ts'
import type { DeliverySettings } from '../src/webhooks/delivery-settings-repository.ts'
import type { Lane } from './lane.ts'
import type { LaneOwnership } from './lane-ownership.ts'

/** Settings that are read in one statement. */
const SETTINGS_AT_A_TIME = 64

export interface Look {
  token: string
  /** Webhooks whose lanes are ours by their rows and did not run here when the look was sent. */
  strangers: string[]
}

export interface LaneViewsDeps {
  database: Database
  ownership: LaneOwnership
  log: Logger
  token: () => string
  /** Those that run here. */
  lanes: ReadonlyMap<string, Lane>
  /** Of these what a transaction takes that has not committed yet. */
  unconfirmed: ReadonlySet<string>
  /** Undefined: they can't be used, which is said. */
  usableSettings: (state: LaneState, settings: DeliverySettings | Error) => DeliverySettings | undefined
  lose: (lane: Lane) => void
  /** Told of each look, once the lanes know of it. */
  looked: (look: Look) => void
}

export class LaneViews {
  readonly #deps: LaneViewsDeps
  #refreshing = false
  #again = false
  #refreshedAtMs = -Infinity

  constructor(deps: LaneViewsDeps) {
    this.#deps = deps
  }

  /** Since the last look was sent, in milliseconds. */
  get ageMs(): number {
    return monotonicMs() - this.#refreshedAtMs
  }

  /** Looks now, unless a look is under way. */
  async refresh(): Promise<void> {
    if (this.#refreshing) return
    this.#refreshing = true
    try {
      do {
        this.#again = false
        await this.#refresh()
      } while (this.#again)
    } catch (error) {
      // The view of each grows old and they start nothing; that is what the age is for.
      this.#deps.log.debug('lanes.refresh_failed', errorFields(error))
    } finally {
      this.#refreshing = false
    }
  }

  /** Looks once more behind this moment. */
  async refreshAnew(): Promise<void> {
    this.#again = true
    await this.refresh()
  }

  async #refresh(): Promise<void> {
    const { database, lanes, lose, looked } = this.#deps
    const token = this.#deps.token()
    // Only what was ours before the query can be missed by it.
    const before = new Map(lanes)
    for (const webhookId of this.#deps.unconfirmed) before.delete(webhookId)
    const readAtMs = monotonicMs()
    this.#refreshedAtMs = readAtMs
    const states = await listOwnedLanes(database.knex, token)
    const strangers: string[] = []
    const changed: { lane: Lane; state: LaneState }[] = []
    for (const state of states) {
      const lane = before.get(state.webhookId)
      before.delete(state.webhookId)
      if (!lane) strangers.push(state.webhookId)
      else if (state.settingsChangedAt !== null || lane.settingsAt.getTime() !== state.updatedAt.getTime()) {
        changed.push({ lane, state })
      } else lane.refresh(state, readAtMs)
    }
    for (const lane of before.values()) lose(lane)
    looked({ token, strangers })
    for (const lane of lanes.values()) lane.pump()
    // Behind the others, and many in one round trip: an erasure may change those of every lane, and a view that is too old starts
    // nothing.
    for (let at = 0; at < changed.length; at += SETTINGS_AT_A_TIME) {
      await this.#refreshSettings(changed.slice(at, at + SETTINGS_AT_A_TIME), readAtMs, token)
    }
  }

  async #refreshSettings(changed: { lane: Lane; state: LaneState }[], readAtMs: number, token: string): Promise<void> {
    const { database, ownership, usableSettings } = this.#deps
    const read = await Promise.all(changed.map(({ state }) => ownership.readSettings(state.webhookId)))
    for (const [n, { lane, state }] of changed.entries()) {
      const settings = usableSettings(state, read[n]!)
      // One that breaks while it runs stops alone: the others must be read on.
      if (settings) lane.refresh(state, readAtMs, settings)
      else lane.stop()
      lane.pump()
    }
    const asked = changed.flatMap(({ state }) => (state.settingsChangedAt === null ? [] : [state]))
    if (asked.length > 0) await confirmSettingsRead(database.knex, asked, token)
  }
}
