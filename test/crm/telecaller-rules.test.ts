import { describe, expect, test } from 'vitest'
import { nextTelecaller } from '../../src/crm/telecaller-rules.ts'

describe('nextTelecaller', () => {
  const candidates = [
    { id: 'a', openLeads: 2 },
    { id: 'b', openLeads: 1 },
    { id: 'd', openLeads: 1 },
  ]
  test.each([
    ['round_robin', null, 'a'],
    ['round_robin', 'a', 'b'],
    ['round_robin', 'c', 'd'],
    ['round_robin', 'd', 'a'],
    ['round_robin', 'z', 'a'],
    ['least_open', null, 'b'],
    ['least_open', 'b', 'd'],
    ['least_open', 'd', 'b'],
    ['manual', 'a', null],
  ] as const)('by %s after %s is %s', (strategy, last, next) => {
    expect(nextTelecaller(strategy, candidates, last)).toBe(next)
    expect(nextTelecaller(strategy, [], last)).toBeNull()
  })
})
