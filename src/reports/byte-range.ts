/**
 * The part of a file that a Range header asks for (RFC 9110, 14.1.2 and 14.2). Pure.
 */
export interface ByteRange {
  start: number
  /** The last byte, included. */
  end: number
}

/**
 * One range of bytes is understood. Anything else, also several ranges, counts as no header at all, as the RFC allows.
 * @param size of the file, in bytes
 * @returns undefined: the whole file
 */
export function rangeOf(header: string | undefined, size: number): ByteRange | 'unsatisfiable' | undefined {
  const match = /^bytes=(\d*)-(\d*)$/i.exec(header?.trim() ?? '')
  const [, first = '', last = ''] = match ?? []
  if (!match || (first === '' && last === '')) return undefined
  if (first === '') {
    const length = Math.min(Number(last), size)
    return length === 0 ? 'unsatisfiable' : { start: size - length, end: size - 1 }
  }
  const start = Number(first)
  const end = last === '' ? size - 1 : Math.min(Number(last), size - 1)
  if (last !== '' && Number(last) < start) return undefined
  return start >= size ? 'unsatisfiable' : { start, end }
}
