/**
 * An answer that many get alike: made to bytes once, named by them, and compressed where the client takes that. Only for lists
 * without secrets: with something secret in it, the size of a compressed answer can be made to tell (BREACH).
 */
import { createHash } from 'node:crypto'
import { promisify } from 'node:util'
import { brotliCompress, constants, gzip } from 'node:zlib'
import type { Request } from 'express'
import { ownBytes, ownCopy } from './own-bytes.ts'

export type Encoding = 'br' | 'gzip' | 'identity'

/** What fits into a packet gains nothing. */
const SMALLEST_COMPRESSED = 1400

/** Of each the level that gives most of its gain for little time. */
const COMPRESS = {
  br: (bytes: Buffer) => promisify(brotliCompress)(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 5 } }),
  gzip: (bytes: Buffer) => promisify(gzip)(bytes, { level: 6 }),
}

/** JSON of a `T`. */
export class Representation<T> {
  /** So that one of something else does not compile in its place. */
  declare readonly of: T
  readonly #bytes: Buffer
  readonly #hash: string
  readonly #compressed = new Map<Encoding, Promise<Buffer>>()
  #size: number

  private constructor(bytes: Buffer) {
    this.#bytes = bytes
    this.#size = bytes.length
    this.#hash = createHash('sha256').update(bytes).digest('base64url').slice(0, 27)
  }

  static of<T>(body: T): Representation<T> {
    return new Representation<T>(ownBytes(JSON.stringify(body)))
  }

  get isWorthCompressing(): boolean {
    return this.#bytes.length > SMALLEST_COMPRESSED
  }

  /** Bytes that it takes in memory so far, compressed forms included. */
  get size(): number {
    return this.#size
  }

  /** A strong validator (RFC 9110 8.8.3): other bytes have another one, so that each encoding has its own. */
  etag(encoding: Encoding): string {
    return encoding === 'identity' ? `"${this.#hash}"` : `"${this.#hash}-${encoding}"`
  }

  async encoded(encoding: Encoding): Promise<Buffer> {
    if (encoding === 'identity') return this.#bytes
    const known = this.#compressed.get(encoding)
    if (known) return known
    // The end of a larger piece as it comes.
    const bytes = COMPRESS[encoding](this.#bytes).then(ownCopy)
    this.#compressed.set(encoding, bytes)
    this.#size += (await bytes).length
    return bytes
  }
}

/** What the client takes, the smaller one first where it takes several alike. */
export function negotiateEncoding(req: Request, body: Representation<unknown>): Encoding {
  if (!body.isWorthCompressing || req.headers['accept-encoding'] === undefined) return 'identity'
  return (req.acceptsEncodings('br', 'gzip', 'identity') || 'identity') as Encoding
}

/**
 * Whether `If-None-Match` names it (RFC 9110 13.1.2). Unlike express' `fresh` also beside `Cache-Control: no-cache`, which
 * `fetch` adds by itself, and which asks for an answer from us, not for a long one.
 */
export function isKnown(req: Request, etag: string): boolean {
  const named = namedIn(req.headers['if-none-match']).map((tag) => tag.replace(/^W\//, ''))
  return named.includes(etag) || named.includes('*')
}

/** Whether there is an `If-Match` that names something else (RFC 9110 13.1.1). A weak tag names nothing: it may stand for other bytes. */
export function isUnexpected(req: Request, etag: string): boolean {
  const expected = req.headers['if-match']
  return expected !== undefined && !namedIn(expected).some((tag) => tag === etag || tag === '*')
}

function namedIn(tags = ''): string[] {
  return tags.split(',').map((tag) => tag.trim())
}
