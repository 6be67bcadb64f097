/**
 * Lists of tests and packages as they were last answered. A lab may have thousands of tests, and integrators ask again and
 * again: while the lab's catalogue has the same version, so has its list.
 */
import { monotonicMs } from '../clock.ts'
import type { Representation } from '../representation.ts'

const MAX_BYTES = 48 * 1024 * 1024
/** What a list takes besides its bytes, about 750 of them measured: every party has lists of its own, and most are short. */
const BYTES_BESIDES = 1024
/** A change that was made past this service, by hand in the database, counts after this time at the latest. */
const LONGEST_MS = 60_000

interface KnownList<T> {
  version: string
  madeAtMs: number
  list: Promise<Representation<T>>
}

export class CatalogueLists {
  /** Least recently used first. */
  readonly #known = new Map<string, KnownList<unknown>>()
  /** Of what is known and ready, by key; a compressed form that came later counts from the list's next use on. */
  readonly #sizes = new Map<string, number>()
  #bytes = 0

  /**
   * @param key what the list is of: its kind, its lab, and whose prices
   * @param version of the lab's catalogue, read before
   * @param make reads the rows anew
   */
  async get<T>(
    key: (string | undefined)[],
    version: string,
    make: () => Promise<Representation<T>>,
  ): Promise<Representation<T>> {
    const name = key.join(' ')
    const nowMs = monotonicMs()
    const known = this.#known.get(name) as KnownList<T> | undefined
    const isGood = known?.version === version && nowMs - known.madeAtMs < LONGEST_MS
    const current = isGood ? known : { version, madeAtMs: nowMs, list: make() }
    this.#forget(name)
    this.#known.set(name, current)
    try {
      const list = await current.list
      if (this.#known.get(name) === current) this.#weigh(name, list.size + BYTES_BESIDES)
      return list
    } catch (error) {
      if (this.#known.get(name) === current) this.#forget(name)
      throw error
    }
  }

  #weigh(name: string, size: number): void {
    this.#bytes += size - (this.#sizes.get(name) ?? 0)
    this.#sizes.set(name, size)
    for (const oldest of this.#known.keys()) {
      if (this.#bytes <= MAX_BYTES) return
      this.#forget(oldest)
    }
  }

  #forget(name: string): void {
    this.#bytes -= this.#sizes.get(name) ?? 0
    this.#sizes.delete(name)
    this.#known.delete(name)
  }
}
