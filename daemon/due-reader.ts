/**
 * Reads what lanes have due: several that ask in one moment together, and without the bodies that others have just read.
 */
import type { Knex } from 'knex'
import {
  listBodies,
  listDueKeys,
  listDueOfSeveral,
  withBodies,
  type EventBody,
  type PendingDelivery,
} from '../src/deliveries/delivery-queue-repository.ts'
import type { DueRequest } from '../src/deliveries/due-rows.ts'
import { togetherInTick } from '../src/same-tick.ts'
import { KnownBodies } from './known-bodies.ts'

/** Reads of so few rows go together with those of other lanes; a longer one would keep them waiting. */
const MOST_SHARED_ROWS = 150
/** MariaDB turns a list of 1,000 and more into a query of its own. */
const MOST_BODIES = 900

export class DueReader {
  readonly #knex: Knex
  readonly #bodies = new KnownBodies()
  /** Bodies that are being read. */
  readonly #underWay = new Map<string, Promise<Map<string, EventBody>>>()
  readonly #readTogether = togetherInTick((requests: DueRequest[]) => this.#readSeveral(requests))

  constructor(knex: Knex) {
    this.#knex = knex
  }

  /** Called four times a second. */
  look(): void {
    this.#bodies.look()
  }

  async read(request: DueRequest): Promise<PendingDelivery[]> {
    if (request.limit <= MOST_SHARED_ROWS) return this.#readTogether(request)
    return (await this.#readSeveral([request]))[0]!
  }

  async #readSeveral(requests: DueRequest[]): Promise<PendingDelivery[][]> {
    const read = this.#bodies.areShared ? await this.#readKeys(requests) : undefined
    if (read) return read
    const lists = await listDueOfSeveral(this.#knex, requests)
    if (!this.#bodies.areShared) this.#bodies.sample(lists)
    return lists
  }

  /** @returns undefined where a body can't be had so: erased or purged since the keys were read, or of too many events */
  async #readKeys(requests: DueRequest[]): Promise<PendingDelivery[][] | undefined> {
    const keys = await listDueKeys(this.#knex, requests)
    // Held here: of large bodies few are kept.
    const found = new Map<string, EventBody>()
    const coming = new Set<Promise<Map<string, EventBody>>>()
    const missing: string[] = []
    for (const eventId of new Set(keys.eventIds)) {
      const known = this.#bodies.get(eventId)
      const reading = known ? undefined : this.#underWay.get(eventId)
      if (known) found.set(eventId, known)
      else if (reading) coming.add(reading)
      else missing.push(eventId)
    }
    this.#bodies.count(keys.eventIds.length, missing.length)
    if (missing.length > MOST_BODIES) return undefined
    if (missing.length > 0) coming.add(this.#readBodies(missing))
    for (const read of await Promise.all(coming)) for (const [eventId, body] of read) found.set(eventId, body)
    return withBodies(keys, found)
  }

  /** Lanes that have their turn together come to the same events together. */
  #readBodies(eventIds: string[]): Promise<Map<string, EventBody>> {
    const reading = listBodies(this.#knex, eventIds)
      .then((read) => {
        for (const [eventId, body] of read) this.#bodies.learn(eventId, body)
        return read
      })
      .finally(() => {
        for (const eventId of eventIds) this.#underWay.delete(eventId)
      })
    for (const eventId of eventIds) this.#underWay.set(eventId, reading)
    return reading
  }
}
