/**
 * Hands over what is due, several at a time, so that one which takes long keeps no other waiting. What is due stands in rows; each try
 * claims its own, so any number of daemons may do this at once.
 */

export interface DueSendingOptions<Row> {
  /** So many at a time, of this daemon. */
  most: number
  /** Rows that are due, in the order in which they are to go. */
  list(limit: number): Promise<Row[]>
  keyOf(row: Row): string
  /** One try, with its claim. Rejects where the database is at fault. */
  handOver(row: Row): Promise<void>
  onFault(error: unknown): void
  /** One that takes longer than `afterMs` milliseconds leaves its place to another. With so many of them under way none begins. */
  slow?: { afterMs: number; most: number }
  /** Whether another one may begin beside so many. */
  mayBegin?(underWay: number): boolean
}

const LISTED_AT_A_TIME = 100

export class DueSending<Row> {
  readonly #options: DueSendingOptions<Row>
  /** By key: what this daemon has under way is not begun a second time, whatever its row says. */
  readonly #underWay = new Map<string, Promise<void>>()
  /** Those of them that have left their places. */
  readonly #slow = new Set<string>()
  /** What the database was at fault with waits until somebody asks again. */
  readonly #passedOver = new Set<string>()
  /** Listed, and not begun. */
  #due: Row[] = []
  /** More may be due than was listed. */
  #isStale = false
  #looking: Promise<void> | undefined
  #stopped = false

  constructor(options: DueSendingOptions<Row>) {
    this.#options = options
  }

  get underWay(): number {
    return this.#underWay.size
  }

  /** Begins what is due now, as far as there is room, and the rest as room comes. Never rejects. */
  begin(): Promise<void> {
    this.#isStale = true
    this.#passedOver.clear()
    // What has come due since then may go before what was listed.
    this.#due = []
    return this.goOn()
  }

  /** Begins what has been listed, where it may by now. Never rejects. */
  goOn(): Promise<void> {
    this.#looking ??= this.#look()
    return this.#looking
  }

  /** As `begin`, and resolves when nothing is under way any more. */
  async run(): Promise<void> {
    await this.begin()
    while (this.#underWay.size > 0 || this.#looking) await Promise.all([...this.#underWay.values(), this.#looking])
  }

  /** Begins nothing more. Resolves when nothing is under way, or after this time in milliseconds. */
  async stop(withinMs?: number): Promise<void> {
    this.#stopped = true
    let timer: NodeJS.Timeout | undefined
    const enough = new Promise<void>((resolve) => {
      if (withinMs !== undefined) timer = setTimeout(resolve, withinMs)
    })
    await Promise.race([Promise.all([...this.#underWay.values(), this.#looking]), enough])
    clearTimeout(timer)
  }

  async #look(): Promise<void> {
    // Not before this look is known as the one under way: its end takes that back, in the turn in which it has looked last.
    await undefined
    try {
      for (;;) {
        while (this.#due.length > 0 && this.#mayBegin()) this.#start(this.#due.shift()!)
        if (this.#due.length > 0 || !this.#isStale || !this.#mayBegin()) return
        await this.#list()
      }
    } catch (error) {
      this.#options.onFault(error)
    } finally {
      this.#looking = undefined
    }
  }

  async #list(): Promise<void> {
    // What comes due from here on may not be in it.
    this.#isStale = false
    const listed = await this.#options.list(LISTED_AT_A_TIME)
    this.#due = listed.filter((row) => {
      const key = this.#options.keyOf(row)
      return !this.#underWay.has(key) && !this.#passedOver.has(key)
    })
    // A list of nothing but those would be the same again.
    if (listed.length === LISTED_AT_A_TIME && this.#due.length > 0) this.#isStale = true
  }

  #mayBegin(): boolean {
    const { most, slow, mayBegin } = this.#options
    const { size } = this.#underWay
    if (this.#stopped || size - this.#slow.size >= most || (slow && this.#slow.size >= slow.most)) return false
    return mayBegin?.(size) ?? true
  }

  #start(row: Row): void {
    const { keyOf, handOver, onFault, slow } = this.#options
    const key = keyOf(row)
    const leave = () => {
      this.#slow.add(key)
      void this.goOn()
    }
    const timer = slow && setTimeout(leave, slow.afterMs)
    const work = handOver(row)
      .catch((error: unknown) => {
        this.#passedOver.add(key)
        onFault(error)
      })
      .finally(() => {
        clearTimeout(timer)
        this.#slow.delete(key)
        this.#underWay.delete(key)
        void this.goOn()
      })
    this.#underWay.set(key, work)
  }
}
