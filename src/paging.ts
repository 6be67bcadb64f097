/**
 * Pages of lists. A cursor holds the sort key of the last row that was shown, so that rows that come and go meanwhile neither
 * repeat nor hide others. It is opaque to callers. Pure.
 */
import { badRequest, type DomainError } from './errors.ts'
import { isIdShaped } from './ids.ts'

const DEFAULT_LIMIT = 50

/** The values that a list is sorted by, of one row: its id, or something that repeats and then its id. */
export type SortKey = string[]

export interface PageQuery {
  /** Most rows that are shown; validated by the contract. */
  limit?: number | string | undefined
  cursor?: string | undefined
}

export interface PageRequest {
  limit: number
  /** Rows come after this one; undefined: from the first. */
  after: SortKey | undefined
}

/**
 * @param keyLength how many values the list is sorted by
 * @throws 400 for a cursor that is none of this list
 */
export function pageOf({ limit, cursor }: PageQuery, keyLength = 1): PageRequest {
  return {
    limit: Number(limit ?? DEFAULT_LIMIT),
    after: cursor === undefined ? undefined : decodeCursor(cursor, keyLength),
  }
}

/**
 * The same for a list that is sorted by id.
 * @throws 400 for a cursor that is none of this list
 */
export function pageById(query: PageQuery): { limit: number; afterId: string | undefined } {
  const { limit, after } = pageOf(query)
  return { limit, afterId: requireIds(after ?? [])[0] }
}

/**
 * Asked before the values of a cursor that are ids reach SQL (see `isIdShaped`).
 * @throws 400 for a cursor that is none of this list
 */
export function requireIds(values: string[]): string[] {
  if (!values.every(isIdShaped)) throw invalidCursor()
  return values
}

/** @param rows one more than the page holds, where there is one: that tells whether there is a further page */
export function cutPage<Row>(
  rows: Row[],
  limit: number,
  keyOf: (row: Row) => SortKey,
): { shown: Row[]; nextCursor: string | null } {
  const shown = rows.slice(0, limit)
  return { shown, nextCursor: rows.length > limit ? encodeCursor(keyOf(shown.at(-1)!)) : null }
}

export function encodeCursor(key: SortKey): string {
  return Buffer.from(JSON.stringify(key), 'utf8').toString('base64url')
}

export function decodeCursor(cursor: string, keyLength: number): SortKey {
  const key = parse(Buffer.from(cursor, 'base64url').toString('utf8'))
  const isKey = Array.isArray(key) && key.length === keyLength && key.every((value) => typeof value === 'string')
  if (!isKey) throw invalidCursor()
  return key
}

/** The 400 for a cursor whose values are none of the list's. */
export function invalidCursor(): DomainError {
  const fault = 'must be the nextCursor of the page before'
  return badRequest(`cursor ${fault}`, 'invalid_request', 'cursor', fault)
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
