/**
 * Keeps every event's body within 20 KB, whatever was sent (decisions 3): names are cut at 100 characters; then the record's copy of
 * the integrator's own id, and lists get shorter and say how many there are; a message's text is cut last of the texts, and behind
 * it the body's integrator's id, because events are matched by it. Pure.
 */
const MAX_BYTES = 20_000
const NAME_CHARACTERS = 100

/** The first that fits is taken. At the last, a body has 18 KB at most, when each of its characters takes six bytes in JSON. */
const STEPS: Limits[] = [
  { items: 100, valueCharacters: 4096, textCharacters: 4096, idCharacters: 4096, copiedIdCharacters: 4096 },
  ...[100, 50, 25, 12, 6, 3, 1, 0].map((items) => ({
    items,
    valueCharacters: 500,
    textCharacters: 4096,
    idCharacters: 4096,
    copiedIdCharacters: 100,
  })),
  // An id of 4,096 characters that take three bytes each still stands whole beside such a text.
  { items: 0, valueCharacters: 0, textCharacters: 1000, idCharacters: 4096, copiedIdCharacters: 100 },
  { items: 0, valueCharacters: 0, textCharacters: 1000, idCharacters: 1000, copiedIdCharacters: 100 },
]

interface Limits {
  items: number
  valueCharacters: number
  textCharacters: number
  /** Of the integrator's own id, which stands in the body and again in the record in `data`. */
  idCharacters: number
  copiedIdCharacters: number
}

/** Cuts while a body is built, and remembers whether it had to. */
export class Cutter {
  readonly #limits: Limits
  #hasCut = false

  constructor(limits: Limits) {
    this.#limits = limits
  }

  /** For `data`: says that something is missing, where something is. */
  get mark(): { truncated?: true } {
    return this.#hasCut ? { truncated: true } : {}
  }

  name(text: string): string {
    return this.#text(text, NAME_CHARACTERS)
  }

  id(text: string): string {
    return this.#text(text, this.#limits.idCharacters)
  }

  copiedId(text: string): string {
    return this.#text(text, this.#limits.copiedIdCharacters)
  }

  /** What a patient reads. */
  text(text: string): string {
    return this.#text(text, this.#limits.textCharacters)
  }

  /** A variable of a template; what the text was made of, so it goes before the text. */
  value(text: string): string {
    return this.#text(text, this.#limits.valueCharacters)
  }

  list<Item>(items: Item[]): { items: Item[]; count?: number } {
    if (items.length <= this.#limits.items) return { items }
    this.#hasCut = true
    return { items: items.slice(0, this.#limits.items), count: items.length }
  }

  #text(text: string, characters: number): string {
    if (text.length <= characters) return text
    const points = [...text]
    if (points.length <= characters) return text
    this.#hasCut = true
    return points.slice(0, characters).join('')
  }
}

/**
 * @param build makes the body with what the cutter leaves of it; called again while it is too large
 * @returns the exact bytes that are stored, signed and sent
 */
export function boundedBody(build: (cutter: Cutter) => object): Buffer {
  for (const limits of STEPS) {
    const body = Buffer.from(JSON.stringify(build(new Cutter(limits))), 'utf8')
    if (body.length <= MAX_BYTES) return body
  }
  throw new Error('an event has more fixed fields than fit in 20 KB')
}
