/**
 * Reads one answer of HTTP/1.1 as it arrives. Little is wanted of it: the status, `retry-after`, the first KB of the body, and
 * whether it leaves no doubt about where the next answer begins. Any doubt ends the use of the connection, not the answer.
 */
import {
  begins,
  CONNECTION,
  HTTP_1_1,
  IS_TEXT,
  IS_TOKEN,
  isText,
  isValue,
  KEEP_ALIVE,
  keepAliveSecondsOf,
  nameOf,
  statusAt,
  TAB,
} from './answer-bytes.ts'
import { UnfinishedLine } from './unfinished-line.ts'

/** The status line and headers: an answer is judged by its status, not by what a server puts beside it. */
const MAX_HEAD_BYTES = 65_536
/** Of heads that are no answer (1xx); more are not read, and so no answer comes. */
const MAX_INFORMATIONAL_BYTES = 65_536
/** How much of the body is read, and how much is kept. */
const BODY_READ_BYTES = 16_384
const BODY_KEPT_BYTES = 1024
/** Sizes of chunks, their extensions and trailers: as much again. */
const CHUNK_OVERHEAD_BYTES = 16_384

/** What an unreadable head is told apart by. These three have stood in the log of attempts from the start. */
const UNREADABLE = 'HPE_INVALID'
const HEAD_TOO_LARGE = 'UND_ERR_HEADERS_OVERFLOW'
/** Nothing more can come. */
export const CONNECTION_OVER = 'UND_ERR_SOCKET'

const LF = 10
const CR = 13
const COLON = 58
const SPACE = 32

type Part =
  | 'status_line'
  | 'headers'
  | 'length'
  | 'until_close'
  | 'chunk_size'
  | 'chunk'
  | 'chunk_end'
  | 'trailers'
  /** No answer any more, or enough of it. */
  | 'given_up'
  | 'complete'

export class HttpAnswer {
  /** Of the answer proper, and 0 until its head has ended. */
  status = 0
  retryAfter: string | undefined
  /** The code of what makes the head unreadable. */
  fault: string | undefined
  /** The first KB of the body. */
  kept: Buffer | null = null
  /** How long the server says that it keeps the connection, in seconds; -1: it doesn't say. */
  keepAliveSeconds = -1
  #part: Part = 'status_line'
  #clean = true
  #keepAlive = true
  #statusOfHead = 0
  #contentLength = -1
  #isHttp11 = true
  /** Each value behind a comma. */
  #transferEncoding: string | undefined
  #retryAfters = 0
  #headBytes = 0
  #informationalBytes = 0
  #bodyBytes = 0
  #overheadBytes = 0
  /** Bytes that are still to come of the body or of a chunk. */
  #left = 0
  /** The beginning of a line whose end has not arrived. */
  readonly #rest = new UnfinishedLine()
  /** How much of it, once more has arrived, need not be searched for an end again. */
  #searched = 0
  /** Which header of the head a folded line goes on with. */
  #lastHeader: 'none' | 'framing' | 'other' = 'none'

  /** Whole, or as much of it as is read. */
  get over(): boolean {
    return this.#part === 'complete' || this.#part === 'given_up'
  }

  /** So much of what is no answer has come that the rest is not read: the deadline judges it. */
  get endless(): boolean {
    return this.#informationalBytes > MAX_INFORMATIONAL_BYTES
  }

  /** What comes next on this connection can only be the answer to the next request. */
  get reusable(): boolean {
    return this.#part === 'complete' && this.#clean && this.#keepAlive
  }

  /** Takes what has arrived; it is not held on to. */
  push(arrived: Buffer, length: number): void {
    let bytes = arrived
    let end = length
    if (this.#rest.length > 0) {
      this.#searched = this.#rest.length
      end += this.#rest.length
      bytes = this.#rest.take(arrived, length)
    }
    let at = 0
    while (at < end && !this.over) {
      const part = this.#part
      if (part === 'length' || part === 'chunk' || part === 'until_close') at = this.#takeBody(bytes, at, end)
      else at = this.#takeLine(bytes, at, end)
    }
    if (at < end) this.#clean = false
  }

  /** The connection was closed properly: the end of an answer that has no other. */
  close(): void {
    if (this.#part === 'until_close') this.#part = 'complete'
  }

  #takeBody(bytes: Buffer, at: number, end: number): number {
    const taken = this.#part === 'until_close' ? end - at : Math.min(this.#left, end - at)
    const wanted = Math.min(taken, BODY_KEPT_BYTES - (this.kept?.length ?? 0))
    if (wanted > 0) {
      const piece = Buffer.from(bytes.subarray(at, at + wanted))
      this.kept = this.kept ? Buffer.concat([this.kept, piece]) : piece
    }
    this.#bodyBytes += taken
    this.#left -= taken
    if (this.#bodyBytes > BODY_READ_BYTES) this.#part = 'given_up'
    else if (this.#left === 0 && this.#part !== 'until_close')
      this.#part = this.#part === 'length' ? 'complete' : 'chunk_end'
    return at + taken
  }

  /** @returns where the next line begins */
  #takeLine(bytes: Buffer, at: number, end: number): number {
    let lineEnd = at + this.#searched
    this.#searched = 0
    while (lineEnd < end && bytes[lineEnd] !== LF) lineEnd += 1
    this.#count(lineEnd - at)
    if (this.over) return end
    if (lineEnd === end) {
      this.#keepRest(bytes, at, end)
      return end
    }
    this.#count(1)
    if (this.over) return end
    if (lineEnd > at && bytes[lineEnd - 1] === CR) this.#readLine(bytes, at, lineEnd - 1)
    else this.#readBareLine(bytes, at, lineEnd)
    return lineEnd + 1
  }

  /** A line that ends with LF alone. RFC 9112 2.2 lets a head have them; what cuts up a body has to be beyond doubt. */
  #readBareLine(bytes: Buffer, at: number, end: number): void {
    if (this.status !== 0) return this.#refuse()
    this.#doubt()
    this.#readLine(bytes, at, end)
  }

  #keepRest(bytes: Buffer, at: number, end: number): void {
    // Counted again when it has all arrived.
    this.#count(at - end)
    this.#rest.keep(bytes, at, end)
    // Whatever speaks first, or speaks something else, is not waited for.
    if (this.#part !== 'status_line') return
    const begin = bytes.toString('latin1', at, Math.min(at + 5, end))
    if (begin !== '\r' && !'HTTP/'.startsWith(begin)) this.#refuse()
  }

  #count(bytes: number): void {
    if (this.#part === 'status_line' || this.#part === 'headers') {
      this.#headBytes += bytes
      if (this.#headBytes > MAX_HEAD_BYTES) this.#refuse(HEAD_TOO_LARGE)
    } else {
      this.#overheadBytes += bytes
      if (this.#overheadBytes > CHUNK_OVERHEAD_BYTES) this.#part = 'given_up'
    }
  }

  /** Before the end of the head: there is no answer. Behind it: it is cut off there. */
  #refuse(code = UNREADABLE): void {
    if (this.status === 0) this.fault = code
    this.#part = 'given_up'
  }

  #readLine(bytes: Buffer, at: number, end: number): void {
    switch (this.#part) {
      case 'headers':
        return at === end ? this.#endHead() : this.#readHeader(bytes, at, end)
      case 'status_line':
        return at === end ? this.#doubt() : this.#readStatus(bytes, at, end)
      case 'chunk_size':
        return this.#readChunkSize(bytes.toString('latin1', at, end))
      case 'chunk_end':
        return at === end ? this.#go('chunk_size') : this.#refuse()
      default:
        return at === end ? this.#go('complete') : this.#readHeader(bytes, at, end)
    }
  }

  #go(part: Part): void {
    this.#part = part
  }

  #doubt(): void {
    this.#clean = false
  }

  #readStatus(bytes: Buffer, at: number, end: number): void {
    if (!begins(bytes, at, end, HTTP_1_1)) {
      const version = bytes.toString('latin1', at, Math.min(at + 9, end))
      if (!['HTTP/1.0 ', 'HTTP/2.0 ', 'HTTP/0.9 '].includes(version)) return this.#refuse()
      // Closes its connections unless it says otherwise; the other two should not stand here at all.
      this.#keepAlive = this.#isHttp11 = false
      if (version !== 'HTTP/1.0 ') this.#doubt()
    }
    const status = statusAt(bytes, at + 9, end)
    if (status === undefined) return this.#refuse()
    for (let n = at + 12; n < end; n++) {
      if (bytes[n] === CR) return this.#refuse()
      if (IS_TEXT[bytes[n]!] === 0) this.#doubt()
    }
    this.#statusOfHead = status
    this.#part = 'headers'
  }

  #readHeader(bytes: Buffer, at: number, end: number): void {
    let colon = at
    while (colon < end && IS_TOKEN[bytes[colon]!] === 1) colon += 1
    if (colon === at) return this.#readFold(bytes, at, end)
    if (bytes[colon] !== COLON || !isValue(bytes, colon + 1, end)) return this.#refuse()
    this.#lastHeader = 'other'
    // What trailers say was not asked for.
    if (this.status !== 0) return
    const nameLength = colon - at
    // No other names have these lengths but few: most headers cost no string.
    if (nameLength !== 10 && nameLength !== 11 && nameLength !== 14 && nameLength !== 17) return
    let from = colon + 1
    let to = end
    while (from < to && (bytes[from] === SPACE || bytes[from] === TAB)) from += 1
    while (to > from && (bytes[to - 1] === SPACE || bytes[to - 1] === TAB)) to -= 1
    // Stands in nearly every answer, and says what is so without it.
    if (nameLength === 10 && isText(bytes, at, colon, CONNECTION) && isText(bytes, from, to, KEEP_ALIVE)) {
      this.#keepAlive = true
      return
    }
    this.#takeHeader(nameOf(bytes, at, colon), bytes.toString('latin1', from, to))
  }

  /**
   * A line that goes on with the one before, as servers of old write them (RFC 9112 5.2). Not where it would change where the answer ends:
   * of those, readers have made different things.
   */
  #readFold(bytes: Buffer, at: number, end: number): void {
    const isFold = (bytes[at] === SPACE || bytes[at] === TAB) && this.status === 0 && this.#lastHeader === 'other'
    if (!isFold || !isValue(bytes, at, end)) return this.#refuse()
    this.#doubt()
  }

  #takeHeader(name: string, value: string): void {
    switch (name) {
      case 'content-length':
        this.#lastHeader = 'framing'
        if (this.#contentLength === -1 && /^\d{1,15}$/.test(value)) this.#contentLength = Number(value)
        else this.#takeLengths(value.split(','))
        break
      case 'transfer-encoding':
        this.#lastHeader = 'framing'
        this.#transferEncoding = (this.#transferEncoding ?? '') + `,${value.toLowerCase()}`
        break
      case 'connection':
        if (value === 'keep-alive') this.#keepAlive = true
        else this.#takeConnection(value.toLowerCase().split(','))
        break
      case 'keep-alive':
        this.keepAliveSeconds = keepAliveSecondsOf(value) ?? this.keepAliveSeconds
        break
      case 'retry-after':
        // Named twice, it says nothing.
        this.retryAfter = this.#retryAfters++ === 0 ? value : undefined
    }
  }

  /** RFC 9112 6.3: one that is said several times is taken, as long as it is the same. */
  #takeLengths(values: string[]): void {
    this.#doubt()
    for (const value of values) {
      const digits = /^[\t ]*(\d{1,15})[\t ]*$/.exec(value)?.[1]
      if (digits === undefined) return this.#refuse()
      const length = Number(digits)
      if (this.#contentLength !== -1 && this.#contentLength !== length) return this.#refuse()
      this.#contentLength = length
    }
  }

  #takeConnection(options: string[]): void {
    for (const option of options) {
      if (option.trim() === 'close') this.#doubt()
      else if (option.trim() === 'keep-alive') this.#keepAlive = true
    }
  }

  #endHead(): void {
    const [length, encoding, status] = [this.#contentLength, this.#transferEncoding, this.#statusOfHead]
    // Readers that disagree about which of the two counts can be made to see different answers.
    if (length !== -1 && encoding !== undefined) return this.#refuse()
    // The server speaks another protocol from here: no answer will come.
    if (status === 101) return this.#refuse(CONNECTION_OVER)
    if (status < 200) return this.#passOver()
    this.status = status
    // A server of HTTP/1.0 knows no chunks: its answer is cut up by something in between (RFC 9112 6.1).
    if (encoding !== undefined && (encoding !== ',chunked' || !this.#isHttp11)) this.#doubt()
    if (status === 204 || status === 304) {
      // No body, whatever it says; a server that says otherwise may have sent one.
      if (length > 0 || encoding !== undefined) this.#doubt()
      this.#part = 'complete'
    } else if (encoding !== undefined && /(^|[\t ,])chunked$/.test(encoding)) this.#part = 'chunk_size'
    else if (length === -1 || encoding !== undefined) this.#part = 'until_close'
    else {
      this.#left = length
      this.#part = length === 0 ? 'complete' : 'length'
    }
    if (this.#part === 'until_close') this.#doubt()
  }

  /** An informational head is no answer, and has no body, whatever it says. */
  #passOver(): void {
    if (this.#contentLength > 0 || this.#transferEncoding !== undefined) this.#doubt()
    this.#informationalBytes += this.#headBytes
    this.#headBytes = 0
    this.#contentLength = -1
    this.#transferEncoding = undefined
    this.retryAfter = undefined
    this.#retryAfters = 0
    this.#lastHeader = 'none'
    this.#part = 'status_line'
  }

  #readChunkSize(line: string): void {
    const size = /^([0-9a-f]{1,8})(?:;[\t\x20-\x7e\x80-\xff]*)?$/i.exec(line)
    if (!size) return this.#refuse()
    this.#left = Number.parseInt(size[1]!, 16)
    this.#part = this.#left === 0 ? 'trailers' : 'chunk'
  }
}
