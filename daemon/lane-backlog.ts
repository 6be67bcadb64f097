/**
 * What a lane has read ahead of its queue: what it may send next, and what it still holds because it is not recorded yet.
 */
import type { Knex } from 'knex'
import { monotonicMs } from '../src/clock.ts'
import {
  listOldestDeliveries,
  listWaitingUpTo,
  type HeldCopy,
  type PendingDelivery,
} from '../src/deliveries/delivery-queue-repository.ts'
import type { DueRequest, QueuePosition, ReadTimes } from '../src/deliveries/due-rows.ts'
import { LinkedLine } from '../src/linked-line.ts'
import type { ReadAhead } from './read-ahead.ts'

/** Reading goes on behind what was read last, but from the head at least so often: ids don't commit in order. */
const HEAD_READ_MS = 1000
/** A lane reads so many rows, and twice as many each time it had nothing left to send before they came, or there is room. */
const FIRST_READ_ROWS = 20
const MOST_READ_ROWS = 800
/** So few that are held are read once more with the head: to ask whether they are all would cost as much. */
const FEW_HELD = 25

export interface LaneBacklogDeps {
  knex: Knex
  readAhead: ReadAhead
  /** Reads what is due, together with other lanes that want to in this moment. */
  readDue: (request: DueRequest) => Promise<PendingDelivery[]>
}

type IsCurrent = (delivery: PendingDelivery) => boolean

export class LaneBacklog {
  readonly #webhookId: string
  readonly #deps: LaneBacklogDeps
  #readRows = FIRST_READ_ROWS
  /** What was taken out leaves a hole, so that its body is not kept; the holes are cut off when they are half of it. */
  #buffer: (PendingDelivery | undefined)[] = []
  /** Where the next one stands in it. */
  #at = 0
  /** Of the row that was read last. */
  #place = 0
  /** Copies in the buffer, in flight, or not yet recorded: a read from the head leaves them out. */
  readonly #held = new LinkedLine<HeldCopy>()
  /** Events that were recorded while a read is under way: its view may be older, and would show them as pending still. */
  #recordedDuringRead: string[] = []
  /** Up to here the queue was read; what has come before it since is seen by a look at the head. */
  #position: QueuePosition | undefined
  /** Raised when what was read ahead is dropped: a reading under way then does not count. */
  #generation = 0
  #headReadAtMs = -Infinity
  /** When a read from the head found nothing new; undefined: there may be more. */
  #dryAtMs: number | undefined
  /** The last reading brought as much as it asked for. */
  #goesOn = false
  #reading = false
  #nudged = false
  #mayBeEarly = false

  constructor(deps: LaneBacklogDeps, webhookId: string) {
    this.#deps = deps
    this.#webhookId = webhookId
  }

  get next(): PendingDelivery | undefined {
    return this.#buffer[this.#at]
  }

  /** Monotonic; undefined: there may be something to read. */
  get dryAtMs(): number | undefined {
    return this.#dryAtMs
  }

  get isEmpty(): boolean {
    return this.#held.size === 0
  }

  /** Taken, and not recorded yet. */
  get underWay(): number {
    return this.#held.size - this.#waiting
  }

  /** There is something to send, or more in the queue than was read. */
  get goesOn(): boolean {
    return this.next !== undefined || this.#goesOn
  }

  /** @param share so many may be sent soon */
  wantsRows(share = Infinity): boolean {
    const enough = share < Infinity ? share : this.#readRows
    return this.#dryAtMs === undefined && this.#waiting < enough / 2
  }

  get #waiting(): number {
    return this.#buffer.length - this.#at
  }

  /** The next one, which stays held until it is recorded. */
  take(): PendingDelivery {
    const delivery = this.#buffer[this.#at]!
    this.#buffer[this.#at] = undefined
    this.#at += 1
    if (this.#at * 2 >= this.#buffer.length) {
      // In place: an old array that is left behind would keep those that it still knows of from being collected as young ones.
      this.#buffer.copyWithin(0, this.#at)
      this.#buffer.length -= this.#at
      this.#at = 0
    }
    this.#deps.readAhead.release(delivery.body.length)
    return delivery
  }

  /** @returns its epoch, if it was held */
  recorded({ eventId, held }: { eventId: string; held?: HeldCopy | undefined }): number | undefined {
    if (this.#reading) this.#recordedDuringRead.push(eventId)
    return held && this.#held.remove(held) ? held.epoch : undefined
  }

  get heldEventIds(): string[] {
    return this.#held.values().map(({ eventId }) => eventId)
  }

  /** Events of which a reading that comes to its end now must bring nothing. */
  #known(): Set<string> {
    const known = new Set(this.#recordedDuringRead)
    for (let held = this.#held.first; held; held = held.next) known.add(held.eventId)
    return known
  }

  /** What was read ahead is not to be sent, and a reading under way counts for nothing. */
  drop(): void {
    for (const delivery of this.#buffer) {
      if (!delivery) continue
      if (delivery.held) this.#held.remove(delivery.held)
      this.#deps.readAhead.release(delivery.body.length)
    }
    this.#buffer = []
    this.#at = 0
    this.#goesOn = false
    this.#position = undefined
    this.ignoreReading()
  }

  ignoreReading(): void {
    this.#generation += 1
  }

  /** The next read is one from the head. */
  forgetPosition(): void {
    this.#position = undefined
  }

  /** All that was due when the lane was taken. */
  give(head: PendingDelivery[], readAtMs: number): void {
    for (const delivery of head) {
      delivery.place = ++this.#place
      this.#hold(delivery)
    }
    const last = head.at(-1)
    if (last) this.#position = { dueAt: last.dueAt, eventId: last.eventId }
    this.#headReadAtMs = readAtMs
    this.#dryAtMs = readAtMs
  }

  /** Something new may stand anywhere in the queue. */
  nudge(): void {
    this.#nudged = true
    this.#dryAtMs = undefined
  }

  /** There may be something to read again. */
  wake(): void {
    this.#dryAtMs = undefined
  }

  /** Nothing that can be sent will come. */
  markDry(): void {
    this.#dryAtMs = monotonicMs()
  }

  /**
   * Somebody has asked for the last look, and it found nothing: what was routed by another daemon may be due by its clock, and not by ours,
   * which is some milliseconds behind.
   */
  get mayBeEarly(): boolean {
    return this.#mayBeEarly
  }

  get isHeadDue(): boolean {
    return monotonicMs() - this.#headReadAtMs >= HEAD_READ_MS
  }

  /**
   * @param times reads what is due up to then
   * @param share reads no more than so many that may be sent soon
   * @returns whether there are copies that are not to be sent, because `isCurrent` says so
   * @throws when a reading is under way: of two, one would end without what was recorded during the other, and bring it again
   */
  async read(times: ReadTimes, isCurrent: IsCurrent, share = Infinity): Promise<boolean> {
    if (this.#reading) throw new Error('the queue is being read')
    this.#reading = true
    this.#recordedDuringRead = []
    try {
      return await this.#read(times, isCurrent, share)
    } finally {
      this.#reading = false
    }
  }

  async #read(times: ReadTimes, isCurrent: IsCurrent, share: number): Promise<boolean> {
    // Each read chooses among many.
    if (hasRecovered(times)) this.#readRows = MOST_READ_ROWS
    const wanted = this.#rowsWanted(times, share)
    const rows = this.#deps.readAhead.begin(wanted)
    // Then it asks for more only when it has little left, not again and again for what it can't have.
    if (rows < wanted) this.#readRows = Math.max(FIRST_READ_ROWS, rows)
    try {
      return await this.#readSome(rows, times, isCurrent)
    } finally {
      this.#deps.readAhead.end(rows)
    }
  }

  /** What it can't send soon would only wait here; but what chooses among thousands of keys each time is not to bring a few. */
  #rowsWanted(times: ReadTimes, share: number): number {
    if (share === Infinity || hasRecovered(times)) return this.#readRows
    return Math.max(share - this.#waiting, FIRST_READ_ROWS)
  }

  async #readSome(rows: number, times: ReadTimes, isCurrent: IsCurrent): Promise<boolean> {
    const nowMs = monotonicMs()
    const generation = this.#generation
    const wasNudged = this.#nudged
    const headIsDue = wasNudged || this.#mayBeEarly || this.isHeadDue
    this.#nudged = false
    this.#mayBeEarly = false
    const oldestFirst = hasRecovered(times)
    let after = oldestFirst ? undefined : this.#position
    if (after && headIsDue && !(await this.#holdsAllUpTo(after, times))) after = undefined
    const sawHead = headIsDue || after === undefined
    // What is held stands at the head of the queue until it is recorded: read past it.
    const limit = rows + (after ? 0 : this.#held.size)
    const read = await this.#list(times, after, limit)
    // What was dropped meanwhile may have been dropped for what this reading did not see yet.
    if (generation !== this.#generation) return false
    this.#goesOn = read.length >= limit
    if (sawHead) this.#headReadAtMs = nowMs
    if (read.length >= this.#readRows && (this.#waiting === 0 || this.#deps.readAhead.isRoomy)) {
      this.#readRows = Math.min(this.#readRows * 2, MOST_READ_ROWS)
    }
    // Also those that are left out: what stands in between counts as a distance.
    for (const delivery of read) delivery.place = ++this.#place
    const current: PendingDelivery[] = []
    let areAllCurrent = true
    const known = this.#known()
    for (const delivery of read) {
      if (known.has(delivery.eventId)) continue
      if (isCurrent(delivery)) current.push(delivery)
      else areAllCurrent = false
    }
    const last = read.at(-1)
    // Of what stands before the last of the oldest, not all has been read.
    if (oldestFirst) this.#position = undefined
    else if (last) this.#position = { dueAt: last.dueAt, eventId: last.eventId }
    if (oldestFirst) current.sort((a, b) => (a.eventId < b.eventId ? -1 : 1))
    for (const delivery of current) this.#hold(delivery)
    this.#mayBeEarly = wasNudged && current.length === 0
    if (read.length < limit) {
      // Only with a look at the head can be said that nothing is left. What comes now nudges, or is found when the lane settles.
      if (sawHead && areAllCurrent && !this.#nudged) this.#dryAtMs = monotonicMs()
      else this.#headReadAtMs = -Infinity
    }
    return !areAllCurrent
  }

  #list(times: ReadTimes, after: QueuePosition | undefined, limit: number): Promise<PendingDelivery[]> {
    const webhookId = this.#webhookId
    if (hasRecovered(times)) return listOldestDeliveries(this.#deps.knex, webhookId, times, limit)
    return this.#deps.readDue({ webhookId, times, after, limit, held: after ? 0 : this.#held.size })
  }

  /** Whether nothing stands before the position but what is held: then the head need not be read with all its bodies. */
  async #holdsAllUpTo(position: QueuePosition, times: ReadTimes): Promise<boolean> {
    if (this.#held.size < FEW_HELD) return false
    const waiting = await listWaitingUpTo(this.#deps.knex, this.#webhookId, times, position, this.#held.size + 1)
    const known = this.#known()
    return waiting.every((eventId) => known.has(eventId))
  }

  #hold(delivery: PendingDelivery): void {
    const { eventId, epoch } = delivery
    delivery.held = { eventId, epoch, line: undefined, previous: undefined, next: undefined }
    this.#held.add(delivery.held)
    this.#deps.readAhead.take(delivery.body.length)
    this.#buffer.push(delivery)
  }
}

/** What is not due yet is read as well. */
function hasRecovered({ now, until }: ReadTimes): boolean {
  return until > now
}
