/**
 * What comes and goes thousands of times a second, in the order in which it came. A `Set` or a `Map` makes a new table each few
 * changes, and each table knows of the next: one that is old keeps all later ones from being collected as young, with everything
 * that stood in them. With buffers that were left behind that was most of what the daemon moved to its old objects.
 */

/** Stands in one line at a time, or in none. */
export interface Linked<T extends Linked<T>> {
  line: LinkedLine<T> | undefined
  previous: T | undefined
  next: T | undefined
}

export class LinkedLine<T extends Linked<T>> {
  #first: T | undefined
  #last: T | undefined
  #size = 0

  /** The one that has stood here longest. */
  get first(): T | undefined {
    return this.#first
  }

  get size(): number {
    return this.#size
  }

  /** Puts it last. @param item stands in no line */
  add(item: T): void {
    item.line = this
    item.previous = this.#last
    if (this.#last) this.#last.next = item
    else this.#first = item
    this.#last = item
    this.#size += 1
  }

  /** @returns whether it stood here */
  remove(item: T): boolean {
    if (item.line !== this) return false
    const { previous, next } = item
    if (previous) previous.next = next
    else this.#first = next
    if (next) next.previous = previous
    else this.#last = previous
    // One among the old objects would keep all that come after it from being collected as young ones, bodies and all.
    item.line = undefined
    item.previous = undefined
    item.next = undefined
    this.#size -= 1
    return true
  }

  /** Takes out the one that has stood here longest. */
  shift(): T | undefined {
    const first = this.#first
    if (first) this.remove(first)
    return first
  }

  /** All that stand here, in order. */
  values(): T[] {
    const items: T[] = []
    for (let item = this.#first; item; item = item.next) items.push(item)
    return items
  }
}
