/**
 * The budget of CRM calls that an account has (specification: limits), as the times of its last accepted calls. Pure: times
 * are microseconds since 1970 by the database's clock, which alone decides.
 */
import { DomainError } from '../errors.ts'

/** Calls that an account may make in a window, over the four operations together. */
export const CRM_CALLS = 60
export const CRM_WINDOW_SECONDS = 60

const SECOND = 1_000_000
/** Of a call's time. */
export const BYTES = 8

/** Of all operations of the contract only these count and are limited. */
const CRM_OPERATIONS = new Set(['listLabs', 'listTests', 'listPackages', 'createEntry'])

export function isCrmOperation(operationId: string): boolean {
  return CRM_OPERATIONS.has(operationId)
}

/** What is left to an account after a call. */
export interface CrmBudget {
  isAccepted: boolean
  limit: number
  remaining: number
  /** Milliseconds until one more call is possible than now: after them a refused call is accepted. */
  moreInMs: number
}

/** @param calls the times of as many calls as the limit is, the oldest first */
export function budgetOf(calls: number[], now: number, isAccepted: boolean): CrmBudget {
  const start = now - CRM_WINDOW_SECONDS * SECOND
  const inWindow = calls.filter((at) => at > start)
  const moreInMs = ((inWindow[0] ?? start) - start) / 1000
  return { isAccepted, limit: calls.length, remaining: calls.length - inWindow.length, moreInMs }
}

/** Whole seconds, as the headers say them: never too few, and never none. */
function wholeSeconds({ moreInMs }: CrmBudget): number {
  return Math.max(1, Math.ceil(moreInMs / 1000))
}

/**
 * The same calls for a clock that was set back: the last one counts as made now, with the distances between them as they
 * were. That never lets more calls through, and keeps nobody out for longer than a window.
 */
export function movedBack(calls: number[], now: number): number[] {
  const ahead = Math.max(0, (calls.at(-1) ?? 0) - now)
  return calls.map((at) => Math.max(0, at - ahead))
}

export function unpackCalls(packed: Buffer): number[] {
  const calls: number[] = []
  // In two halves: a time is far below what a number holds exactly, and a bigint for each of 60 calls costs more than all the rest.
  for (let at = 0; at < packed.length; at += BYTES) {
    calls.push(packed.readUInt32BE(at) * 2 ** 32 + packed.readUInt32BE(at + 4))
  }
  return calls
}

export function packCalls(calls: number[]): Buffer {
  const packed = Buffer.alloc(calls.length * BYTES)
  calls.forEach((at, n) => packed.writeBigUInt64BE(BigInt(at), n * BYTES))
  return packed
}

/** As in draft-ietf-httpapi-ratelimit-headers. */
export function budgetHeaders(budget: CrmBudget): Record<string, string> {
  return {
    'RateLimit-Policy': `"crm";q=${budget.limit};w=${CRM_WINDOW_SECONDS}`,
    RateLimit: `"crm";r=${budget.remaining};t=${wholeSeconds(budget)}`,
  }
}

export function overBudget(budget: CrmBudget): DomainError {
  const seconds = wholeSeconds(budget)
  const details = `more than ${budget.limit} CRM requests in ${CRM_WINDOW_SECONDS} seconds; try again in ${seconds} seconds`
  return new DomainError('too_many_requests', 'rate_limited', details, { retryAfterSeconds: seconds })
}
