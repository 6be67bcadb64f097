import { describe, expect, test } from 'vitest'
import {
  budgetHeaders,
  budgetOf,
  isCrmOperation,
  movedBack,
  overBudget,
  packCalls,
  unpackCalls,
} from '../../src/crm/crm-budget-rules.ts'

const SECOND = 1_000_000
const NOW = 1_795_305_600 * SECOND

test('the four operations of the CRM count, and no other', () => {
  expect(['listLabs', 'listTests', 'listPackages', 'createEntry'].every(isCrmOperation)).toBe(true)
  expect(['issueToken', 'createPreBooking', 'listWebhooks', 'toString'].some(isCrmOperation)).toBe(false)
})

describe('what is left to an account', () => {
  test('counts the calls of the last 60 seconds, of which the oldest says when one more is free', () => {
    const calls = [0, NOW - 60 * SECOND, NOW - 59 * SECOND, NOW - 1]
    expect(budgetOf(calls, NOW, true)).toEqual({ isAccepted: true, limit: 4, remaining: 2, moreInMs: 1000 })
  })

  test('is everything where there was none', () => {
    expect(budgetOf([0, 0, 0], NOW, true)).toEqual({ isAccepted: true, limit: 3, remaining: 3, moreInMs: 0 })
  })

  test('is said in whole seconds, never too few and never none', () => {
    const said = (moreInMs: number) => budgetHeaders({ isAccepted: true, limit: 60, remaining: 7, moreInMs })
    expect(said(0)).toEqual({ 'RateLimit-Policy': '"crm";q=60;w=60', RateLimit: '"crm";r=7;t=1' })
    expect(said(1000).RateLimit).toBe('"crm";r=7;t=1')
    expect(said(1000.001).RateLimit).toBe('"crm";r=7;t=2')
    expect(said(60_000).RateLimit).toBe('"crm";r=7;t=60')
  })

  test('is said to who is refused, with when to come again', () => {
    const refusal = overBudget({ isAccepted: false, limit: 60, remaining: 0, moreInMs: 1500 })
    expect(refusal).toMatchObject({ kind: 'too_many_requests', code: 'rate_limited', extras: { retryAfterSeconds: 2 } })
    expect(refusal.message).toContain('try again in 2 seconds')
  })
})

test('the times of calls are kept to the microsecond, and sort as bytes as they do as numbers', () => {
  const calls = [0, 1, 255, 256, NOW, NOW + 1, Number.MAX_SAFE_INTEGER]
  expect(unpackCalls(packCalls(calls))).toEqual(calls)
  const packed = calls.map((at) => packCalls([at]))
  expect(packed.toSorted(Buffer.compare)).toEqual(packed)
})

describe('for a clock that was set back', () => {
  test('the last call was now, and the distances stay', () => {
    const calls = [NOW + 10 * SECOND, NOW + 40 * SECOND]
    expect(movedBack(calls, NOW)).toEqual([NOW - 30 * SECOND, NOW])
  })

  test('nothing lies before the beginning, and nothing changes for calls of the past', () => {
    expect(movedBack([0, NOW + SECOND], NOW)).toEqual([0, NOW])
    expect(movedBack([NOW - 2, NOW], NOW)).toEqual([NOW - 2, NOW])
    expect(movedBack([], NOW)).toEqual([])
  })
})
