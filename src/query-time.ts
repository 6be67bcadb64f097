import { badRequest } from './errors.ts'

/**
 * @param text held to the contract's pattern, which lets a 30 February and a leap second pass
 * @returns milliseconds since 1970
 * @throws 400 for a time that does not exist
 */
export function timeOf(field: string, text: string): number {
  const timeMs = new Date(text).getTime()
  if (Number.isNaN(timeMs)) throw badRequest(`${field} is no time`, 'invalid_request', field)
  return Math.max(0, timeMs)
}
