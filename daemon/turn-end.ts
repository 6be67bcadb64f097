/**
 * What is put off to the end of a turn of the event loop, one kind of work after the other: a busy daemon takes some thirty answers
 * in a turn. Each kind has much code, JavaScript and native, and what is done thirty times in a row finds its own in the processor's
 * caches: the same work, an answer at a time from its bytes to the next request, cost a tenth more.
 */

/** Its answer has been read, or will not be. */
export interface Settling {
  settle(): void
}

/** Something to be sent: put together first, with its signature, and then written. */
export interface Writing {
  prepare(): void
  write(): void
}

export class TurnEnd {
  #settling: Settling[] = []
  #writing: Writing[] = []
  #isScheduled = false

  /** Before anything is written, so that what is sent because of it leaves in the same turn. */
  settle(settling: Settling): void {
    this.#settling.push(settling)
    this.#schedule()
  }

  /** When all that had arrived has been read; all of a turn goes out in one go, which wakes whoever takes it once instead of for each. */
  write(writing: Writing): void {
    this.#writing.push(writing)
    this.#schedule()
  }

  #schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    setImmediate(this.#run)
  }

  /** What is added meanwhile, but for what is to be written after a settling, has a turn of its own. */
  readonly #run = (): void => {
    const settling = this.#settling
    this.#settling = []
    for (const one of settling) one.settle()
    const writing = this.#writing
    this.#writing = []
    this.#isScheduled = false
    if (this.#settling.length > 0) this.#schedule()
    for (const one of writing) one.prepare()
    for (const one of writing) one.write()
  }
}
