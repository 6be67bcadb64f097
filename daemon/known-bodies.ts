/**
 * Bodies of events that go to many webhooks, kept for the lanes that read the same events a moment later; and whether there are such
 * events at all, by what lanes have read of late.
 */
import type { EventBody, PendingDelivery } from '../src/deliveries/delivery-queue-repository.ts'

/** Twice as much is kept at most: what was learned or asked for last, and what was so before that. */
const HALF_BYTES = 2 * 1024 * 1024
/** A body's id and its places in the maps. */
const ENTRY_BYTES = 256

/** Of ids that end in one of these 2 of 32 letters it is looked whether they come again. */
const SAMPLED = new Set(['0', '1'])
const MOST_SAMPLED = 2000
/** So many tell; four times as many each time that what they told did not come true: of large bodies few are kept. */
const ENOUGH_SAMPLES = 64
const MOST_SAMPLES = 16_384
const ENOUGH_ROWS = 2000
/** Copies of one event in four lanes or more: three of four have been read before. With fewer a second round trip costs more than bodies. */
const WORTH_SHARING = 0.7
const STILL_WORTH = 0.5
/** After so many looks without anybody asking (four a second) none is kept. */
const IDLE_LOOKS = 8

export class KnownBodies {
  #recent = new Map<string, EventBody>()
  #recentBytes = 0
  #older = new Map<string, EventBody>()
  #areShared = false
  readonly #sampled = new Set<string>()
  #enoughSamples = ENOUGH_SAMPLES
  #rows = 0
  #known = 0
  #idleLooks = 0

  /** Whether lanes are to read keys alone. */
  get areShared(): boolean {
    return this.#areShared
  }

  get(eventId: string): EventBody | undefined {
    const recent = this.#recent.get(eventId)
    if (recent) return recent
    const older = this.#older.get(eventId)
    if (older) this.learn(eventId, older)
    return older
  }

  learn(eventId: string, body: EventBody): void {
    if (this.#recentBytes > HALF_BYTES) {
      this.#older = this.#recent
      this.#recent = new Map()
      this.#recentBytes = 0
    }
    this.#recent.set(eventId, body)
    this.#recentBytes += body.body.length + ENTRY_BYTES
  }

  /** Of so many keys that lanes have read, so many bodies had to be read for them. */
  count(rows: number, unknown: number): void {
    this.#idleLooks = 0
    this.#rows += rows
    this.#known += rows - unknown
    if (this.#rows < ENOUGH_ROWS) return
    this.#judge(STILL_WORTH)
    this.#enoughSamples = this.#areShared ? ENOUGH_SAMPLES : Math.min(4 * this.#enoughSamples, MOST_SAMPLES)
  }

  /** Takes note of what lanes have read with its bodies. */
  sample(lists: PendingDelivery[][]): void {
    for (const list of lists) {
      for (const { eventId } of list) {
        if (!SAMPLED.has(eventId.at(-1)!)) continue
        this.#rows += 1
        if (this.#sampled.has(eventId)) this.#known += 1
        else this.#sampled.add(eventId)
      }
    }
    if (this.#rows >= this.#enoughSamples) this.#judge(WORTH_SHARING)
    if (this.#sampled.size > MOST_SAMPLED) this.#sampled.clear()
  }

  #judge(share: number): void {
    this.#setShared(this.#known / this.#rows >= share)
  }

  /** What was counted so far says nothing of what comes. */
  #setShared(areShared: boolean): void {
    this.#rows = 0
    this.#known = 0
    if (areShared === this.#areShared) return
    this.#areShared = areShared
    this.#idleLooks = 0
    this.#sampled.clear()
    this.#recent = new Map()
    this.#recentBytes = 0
    this.#older = new Map()
  }

  /** Called four times a second. */
  look(): void {
    if (!this.#areShared) return
    this.#idleLooks += 1
    if (this.#idleLooks >= IDLE_LOOKS) this.#setShared(false)
  }
}
