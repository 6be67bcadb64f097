/**
 * Taking lanes and giving them back. What many lanes ask for in one moment goes in one statement: their start and their end, and
 * what trickles in.
 */
import { COMMIT, type BatchResult } from '../db/batch.ts'
import { isRetriable, withinBudget, type Database } from '../db/connection.ts'
import { monotonicMs, type Clock } from '../src/clock.ts'
import type { Keys } from '../src/crypto.ts'
import { copiesStatement, readCopies, type PendingDelivery } from '../src/deliveries/delivery-queue-repository.ts'
import {
  findOwnedLane,
  ownedStatement,
  readOwned,
  settleLanes,
  takeStatements,
  type LaneState,
} from '../src/deliveries/lanes-repository.ts'
import type { GivenLane, Taking } from '../src/events/event-routing.ts'
import { readTaken, type TakingAny } from '../src/events/hinted-event-routing.ts'
import { togetherInTick } from '../src/same-tick.ts'
import {
  listDeliverySettings,
  openSettings,
  settingsStatements,
  type DeliverySettings,
} from '../src/webhooks/delivery-settings-repository.ts'

/** With more copies than that the lanes read their own, each as many as it wants. */
const MOST_COPIES_ALONG = 200

interface OwnedBy {
  webhookId: string
  token: string
}

/** A lane as it was when it was taken. */
export interface TakenLane {
  token: string
  state: LaneState
  /** Monotonic: when the query that read it was sent. */
  readAtMs: number
  settings: DeliverySettings | Error
  /** All that was due then; undefined: not read. */
  head?: PendingDelivery[] | undefined
}

/** A `Taking` with how to read what its statements have read. */
export interface TakingAlong extends Taking {
  read(results: BatchResult[]): TakenLane[]
}

/** The same for lanes that are known only when they were taken. */
export interface TakingAnyAlong extends TakingAny {
  read(results: BatchResult[]): TakenLane[]
}

export class LaneOwnership {
  readonly #database: Database
  readonly #keys: Keys
  readonly #clock: Clock
  readonly take = togetherInTick((lanes: OwnedBy[]) => this.#takeAll(lanes))
  readonly readSettings = togetherInTick((webhookIds: string[]) => this.#listSettings(webhookIds))
  /** Nobody waits for it: what ends while others are given back goes with the next ones. */
  readonly giveBack = togetherInTick((lanes: OwnedBy[]) => this.#settleAll(lanes), { groups: 1 })

  constructor(database: Database, keys: Keys, clock: Clock) {
    this.#database = database
    this.#keys = keys
    this.#clock = clock
  }

  /** One that is ours by its row already: the answer of taking it was lost. */
  async readOwned(webhookId: string, token: string): Promise<TakenLane | undefined> {
    const readAtMs = monotonicMs()
    const state = await findOwnedLane(this.#database.knex, webhookId, token)
    return state && { token, state, readAtMs, settings: await this.readSettings(webhookId) }
  }

  /** For lanes that are taken by the transaction that gives them something. The copies come along where there are no others. */
  takingAlong(lanes: GivenLane[], eventIds: string[], copies: number, token: string): TakingAlong {
    const webhookIds = lanes.map(({ webhookId }) => webhookId)
    const readAtMs = monotonicMs()
    const empty = copies > MOST_COPIES_ALONG ? [] : lanes.filter(({ wasEmpty }) => wasEmpty)
    const emptyIds = new Set(empty.map(({ webhookId }) => webhookId))
    return {
      token,
      webhookIds,
      reads: [
        ownedStatement(webhookIds, token),
        ...settingsStatements(webhookIds, this.#clock.now()),
        ...(emptyIds.size > 0 ? [copiesStatement([...emptyIds], eventIds)] : []),
      ],
      read: ([owned, endpoints, secrets, heads]) =>
        this.#takenLanes(readOwned(owned!), token, readAtMs, [endpoints!, secrets!], readCopies(heads ?? [])),
    }
  }

  /**
   * For lanes that are taken by the fan-out of one event, in its one round trip.
   * @param isFree whether nothing here runs it, or is about to, when its row says that it is ours
   */
  takingAnyAlong(exceptIds: string[], token: string, isFree: (webhookId: string) => boolean): TakingAnyAlong {
    const readAtMs = monotonicMs()
    const taking = { token, exceptIds, most: MOST_COPIES_ALONG }
    return {
      ...taking,
      read: (results) => {
        const { states, settings, copies } = readTaken(results, taking, isFree)
        const headOf = Map.groupBy(copies, ({ webhookId }) => webhookId)
        return this.#takenLanes(states, token, readAtMs, settings, headOf)
      },
    }
  }

  #takenLanes(
    states: LaneState[],
    token: string,
    readAtMs: number,
    settingsRead: BatchResult[],
    headOf: Map<string, PendingDelivery[]>,
  ): TakenLane[] {
    const webhookIds = states.map(({ webhookId }) => webhookId)
    const settings = openSettings(this.#keys, webhookIds, settingsRead)
    return states.map((state, n) => ({
      token,
      state,
      readAtMs,
      settings: settings[n]!,
      head: headOf.get(state.webhookId),
    }))
  }

  async #takeAll(lanes: OwnedBy[]): Promise<(TakenLane | undefined)[]> {
    const taken = new Map<string, TakenLane>()
    for (const [token, ids] of byToken(lanes)) {
      for (const lane of await this.#takeTogetherOrEach(ids, token)) taken.set(lane.state.webhookId, lane)
    }
    return lanes.map(({ webhookId }) => taken.get(webhookId))
  }

  /** One whose row somebody holds, for a recovery of its webhook, does not keep the others: it is offered again. */
  async #takeTogetherOrEach(ids: string[], token: string): Promise<TakenLane[]> {
    try {
      return await this.#takeTogether(ids, token)
    } catch (error) {
      if (ids.length === 1 || !isRetriable(error)) throw error
      const each = await Promise.allSettled(ids.map((id) => this.#takeTogether([id], token)))
      return each.flatMap((one) => (one.status === 'fulfilled' ? one.value : []))
    }
  }

  /** In one round trip: the first event of a quiet webhook waits for it. */
  async #takeTogether(ids: string[], token: string): Promise<TakenLane[]> {
    const readAtMs = monotonicMs()
    const read = await this.#database.batch.transaction((send) =>
      send([...takeStatements(ids, token), ...settingsStatements(ids, this.#clock.now()), COMMIT]),
    )
    const settings = openSettings(this.#keys, ids, read.slice(2))
    return readOwned(read[1]!).map((state) => {
      return { token, state, readAtMs, settings: settings[ids.indexOf(state.webhookId)]! }
    })
  }

  #listSettings(webhookIds: string[]): Promise<(DeliverySettings | Error)[]> {
    return listDeliverySettings(this.#database.knex, this.#keys, webhookIds, this.#clock.now())
  }

  async #settleAll(lanes: OwnedBy[]): Promise<void[]> {
    for (const [token, ids] of byToken(lanes)) {
      await withinBudget(() => this.#database.batch.transaction((send) => settleLanes(send, ids, token, [COMMIT])))
    }
    return lanes.map(() => undefined)
  }
}

function byToken(lanes: OwnedBy[]): Map<string, string[]> {
  const ids = new Map<string, string[]>()
  for (const { webhookId, token } of lanes) ids.set(token, [...(ids.get(token) ?? []), webhookId])
  return ids
}
