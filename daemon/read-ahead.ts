/**
 * How much is read ahead in all, in bytes of this daemon: a backlog of any size costs no more memory than this.
 */
const LIMIT_BYTES = 32 * 1024 * 1024
/** What a lane may read when the budget is used up: enough to go on. */
const SCARCE_ROWS = 10

export class ReadAhead {
  #bytes = 0

  /** @returns how many rows a lane may read now */
  rows(wanted: number): number {
    return this.#bytes < LIMIT_BYTES ? wanted : Math.min(wanted, SCARCE_ROWS)
  }

  /** Whether lanes may read more at once than they do. */
  get isRoomy(): boolean {
    return this.#bytes < LIMIT_BYTES / 2
  }

  take(bytes: number): void {
    this.#bytes += bytes
  }

  release(bytes: number): void {
    this.#bytes -= bytes
  }
}
