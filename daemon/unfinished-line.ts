/**
 * The beginning of a line whose end has not arrived. It has room for more, so that a line which comes a byte at a time is not copied
 * with each.
 */
export class UnfinishedLine {
  length = 0
  #bytes: Buffer | undefined

  /** @returns it with this much of what has arrived behind it; nothing is kept until the next `keep` */
  take(arrived: Buffer, length: number): Buffer {
    const rest = this.#bytes!
    const whole = this.length + length
    if (whole > rest.length) {
      this.#bytes = Buffer.allocUnsafe(2 * whole)
      rest.copy(this.#bytes, 0, 0, this.length)
    }
    const bytes = this.#bytes!
    arrived.copy(bytes, this.length, 0, length)
    this.length = 0
    return bytes
  }

  /** @param bytes what `take` has returned, or others, which are not held on to */
  keep(bytes: Buffer, at: number, end: number): void {
    if (bytes !== this.#bytes || at > 0) this.#bytes = Buffer.from(bytes.subarray(at, end))
    this.length = end - at
  }
}
