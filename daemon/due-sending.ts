/**
 * Hands over what is due, several at a time, so that one which takes long keeps no other waiting. What is due stands in rows, each
 * claimed for one try, so any number of daemons may do this at once.
 */

export interface DueSendingOptions<Row> {
  /** So many at a time, of this daemon. */
  most: number
  /** Rows that are claimed for a try, at most so many; none: there is nothing to begin now. */
  claimDue(room: number): Promise<Row[]>
  /** One try. Rejects only where it could not be marked. */
  handOver(row: Row): Promise<void>
}

export class DueSending<Row> {
  readonly #options: DueSendingOptions<Row>
  readonly #underWay = new Set<Promise<void>>()
  #looking: Promise<void> | undefined
  /** Somebody has asked since the look under way began. */
  #again = false
  #stopped = false
  /** Of the runs that wait for an end. */
  #fault: { error: unknown } | undefined

  constructor(options: DueSendingOptions<Row>) {
    this.#options = options
  }

  get underWay(): number {
    return this.#underWay.size
  }

  /** Begins what is due, as far as there is room; what is due behind that is begun as room comes. */
  begin(): Promise<void> {
    this.#again = true
    this.#looking ??= this.#look().finally(() => (this.#looking = undefined))
    return this.#looking
  }

  /** The same, and resolves when nothing is under way any more. @throws what a try has thrown */
  async run(): Promise<void> {
    await this.begin()
    while (this.#underWay.size > 0 || this.#looking) await Promise.all([...this.#underWay, this.#looking])
    const fault = this.#fault
    this.#fault = undefined
    if (fault) throw fault.error
  }

  /** Begins nothing more. Resolves when nothing is under way, or after this time in milliseconds. */
  async stop(withinMs?: number): Promise<void> {
    this.#stopped = true
    await this.#looking?.catch(() => {})
    let timer: NodeJS.Timeout | undefined
    const enough = new Promise<void>((resolve) => {
      if (withinMs !== undefined) timer = setTimeout(resolve, withinMs)
    })
    await Promise.race([Promise.all(this.#underWay), enough])
    clearTimeout(timer)
  }

  async #look(): Promise<void> {
    const { most, claimDue } = this.#options
    while (this.#again) {
      this.#again = false
      while (!this.#stopped && this.#underWay.size < most) {
        const rows = await claimDue(most - this.#underWay.size)
        if (rows.length === 0) break
        for (const row of rows) this.#start(row)
      }
    }
  }

  #start(row: Row): void {
    const work = this.#options
      .handOver(row)
      .catch((error: unknown) => void (this.#fault ??= { error }))
      .finally(() => {
        this.#underWay.delete(work)
        if (!this.#stopped) this.begin().catch((error: unknown) => void (this.#fault ??= { error }))
      })
    this.#underWay.add(work)
  }
}
