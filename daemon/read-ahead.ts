/**
 * How much is read ahead in all, in bytes of this daemon: a backlog of any size, over any number of lanes, costs no more memory than
 * this.
 */
const LIMIT_BYTES = 32 * 1024 * 1024
/** What a row takes beside its body: the object with its dates, and its id among those that are held. */
const ROW_BYTES = 512
/** What a body is taken for until some have been read. */
const FIRST_BODY_BYTES = 1024
/** The size of a row follows that of the last so many. */
const MEAN_OF_ROWS = 64
/** What a lane may read when the budget is used up: enough to go on. */
const SCARCE_ROWS = 10
/** What is sent within some 50 ms under full load. With more each would wait for so long that it is moved to the old objects. */
const ROOMY_ROWS = 1500

export class ReadAhead {
  #bytes = 0
  #rows = 0
  /** Of readings under way: hundreds of lanes ask in one moment, when nothing has come yet. */
  #rowsUnderWay = 0
  #rowBytes = ROW_BYTES + FIRST_BODY_BYTES

  /** @returns how many rows a lane may read now; `end` is told the same number */
  begin(wanted: number): number {
    const free = Math.floor((LIMIT_BYTES - this.#expected) / this.#rowBytes)
    const rows = Math.min(wanted, Math.max(SCARCE_ROWS, free))
    this.#rowsUnderWay += rows
    return rows
  }

  /** A reading of so many rows has ended, and what it has brought was taken. */
  end(rows: number): void {
    this.#rowsUnderWay -= rows
  }

  /** Whether lanes may read more at once than they do. */
  get isRoomy(): boolean {
    return this.#rows + this.#rowsUnderWay < ROOMY_ROWS && this.#expected < LIMIT_BYTES / 2
  }

  take(bodyBytes: number): void {
    const bytes = bodyBytes + ROW_BYTES
    this.#rows += 1
    this.#bytes += bytes
    this.#rowBytes += (bytes - this.#rowBytes) / MEAN_OF_ROWS
  }

  release(bodyBytes: number): void {
    this.#rows -= 1
    this.#bytes -= bodyBytes + ROW_BYTES
  }

  get #expected(): number {
    return this.#bytes + this.#rowsUnderWay * this.#rowBytes
  }
}
