/**
 * What a stop waits for, by name, so that one that takes too long can say what it was.
 */
export class StopSteps {
  readonly #unfinished = new Set<string>()

  async wait<T>(name: string, work: Promise<T>): Promise<T> {
    this.#unfinished.add(name)
    try {
      return await work
    } finally {
      this.#unfinished.delete(name)
    }
  }

  /** Undefined: nothing. */
  get unfinished(): string | undefined {
    return [...this.#unfinished].join(', ') || undefined
  }
}
