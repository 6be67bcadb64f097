import { expect, vi } from 'vitest'
import type { DatabaseProxy } from '../../scripts/crash/database-proxy.ts'

/** Longer than what happens meanwhile takes. */
const LATE_MS = 1500

/**
 * Makes a call, and something happen while the database's answer to such a statement, the first one, is on its way.
 * @param proxy by way of which the call asks
 */
export async function whileAsked<T>(
  proxy: DatabaseProxy,
  statement: RegExp,
  call: () => Promise<T>,
  happens: () => unknown,
): Promise<T> {
  let isAsked = false
  proxy.delayOf = (text) => {
    if (isAsked || !statement.test(text)) return 0
    isAsked = true
    return LATE_MS
  }
  const answer = call()
  await vi.waitFor(() => expect(isAsked).toBe(true), { interval: 5 })
  await happens()
  return answer
}
