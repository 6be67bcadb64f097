/**
 * Texts that have been seen, by fingerprints of 64 bits in one piece of memory: of a million texts two share one with a probability
 * of 3 in 100 million. A set of the texts themselves was a fifth of what a receiver does, most of it in looking through them for
 * garbage.
 */
const FIRST_CELLS = 1 << 18

export class SeenTexts {
  /** Two words for each fingerprint, 0 and 0 where none is. */
  #words = new Uint32Array(2 * FIRST_CELLS)
  #size = 0

  get size(): number {
    return this.#size
  }

  /** @returns whether this is the first time */
  add(text: string): boolean {
    let a = 0x811c9dc5
    let b = 0x9747b28c
    for (let n = 0; n < text.length; n++) {
      const letter = text.charCodeAt(n)
      a = Math.imul(a ^ letter, 0x01000193)
      b = Math.imul(b ^ letter, 0x5bd1e995)
      b ^= b >>> 15
    }
    // A multiplication carries upwards alone: the low bits, which say where to look, get something of the high ones.
    a = Math.imul(a ^ (a >>> 16), 0x85ebca6b)
    const first = (a ^ (a >>> 13)) >>> 0
    if (!this.#put(first, b >>> 0 || 1)) return false
    this.#size += 1
    if (4 * this.#size > this.#words.length) this.#grow()
    return true
  }

  #put(first: number, second: number): boolean {
    const words = this.#words
    const mask = words.length - 1
    for (let at = (2 * first) & mask; ; at = (at + 2) & mask) {
      if (words[at + 1] === 0) {
        words[at] = first
        words[at + 1] = second
        return true
      }
      if (words[at] === first && words[at + 1] === second) return false
    }
  }

  /** At half full. */
  #grow(): void {
    const old = this.#words
    this.#words = new Uint32Array(2 * old.length)
    for (let at = 0; at < old.length; at += 2) if (old[at + 1] !== 0) this.#put(old[at]!, old[at + 1]!)
  }
}
