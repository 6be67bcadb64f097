/**
 * Whether this process can take requests. Asked of the database in the background, so that the answer is there at once even
 * while the database hangs.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { Knex } from 'knex'
import { schemaIsCurrent } from '../db/migrate.ts'

const PROBE_EACH_MS = 500
/** A database that needs longer for nothing does not serve requests either. */
const PROBE_LIMIT_MS = 1000

/** What the database has answered somebody else in this time need not be asked of it again: a daemon does twice a second at least. */
const ANSWERED_MS = 550

export class Readiness {
  readonly #knex: Knex
  readonly #answeredAgoMs: () => number
  #fault: string | undefined = 'the service is starting'
  #isSchemaCurrent = false
  #isDraining = false
  #timer: NodeJS.Timeout | undefined

  /** @param answeredAgoMs how long ago the database has last answered a statement that is sent all the time anyway, in milliseconds */
  constructor(knex: Knex, answeredAgoMs = () => Infinity) {
    this.#knex = knex
    this.#answeredAgoMs = answeredAgoMs
  }

  /** Why not, as a sentence; undefined: ready. */
  get fault(): string | undefined {
    return this.#isDraining ? 'the service is shutting down' : this.#fault
  }

  get isDraining(): boolean {
    return this.#isDraining
  }

  /** Probes once, and from then on again and again until the service drains. */
  async start(): Promise<void> {
    let nextMs = ANSWERED_MS - this.#answeredAgoMs()
    if (this.#fault !== undefined || nextMs < 0) {
      nextMs = PROBE_EACH_MS
      const late = delay(PROBE_LIMIT_MS, 'the database does not answer', { ref: false })
      this.#fault = await Promise.race([this.#probe(), late])
    }
    if (this.#isDraining) return
    // Not before the answer is too old: a database that dies behind it is found out as soon.
    this.#timer = setTimeout(() => void this.start(), nextMs + 1)
    this.#timer.unref()
  }

  /** Not ready from now on, for good. */
  drain(): void {
    this.#isDraining = true
    clearTimeout(this.#timer)
  }

  async #probe(): Promise<string | undefined> {
    try {
      // This limit gives the connection up: one that hangs would be missing from the pool after each probe.
      await this.#knex.raw('SELECT 1').timeout(PROBE_LIMIT_MS)
      this.#isSchemaCurrent ||= await schemaIsCurrent(this.#knex)
      return this.#isSchemaCurrent ? undefined : 'the database schema is not current: run make migrate'
    } catch {
      return 'the database does not answer'
    }
  }
}
