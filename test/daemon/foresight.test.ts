import { expect, test } from 'vitest'
import { Foresight } from '../../daemon/foresight.ts'

test('what is under way or was fanned out needs no further hint, and counts as committed once somebody says so', () => {
  const foresight = new Foresight()
  expect([foresight.eventId, foresight.covers('a'), foresight.isCommitted]).toEqual([undefined, false, false])
  expect(foresight.begin('a')).toBe(true)
  expect([foresight.eventId, foresight.isCommitted]).toEqual(['a', false])
  expect([foresight.covers('b'), foresight.isCommitted]).toEqual([false, false])
  expect([foresight.covers('a'), foresight.isCommitted]).toEqual([true, true])
  foresight.end(true)
  expect([foresight.eventId, foresight.covers('a')]).toEqual([undefined, true])
  expect(foresight.begin('b')).toBe(true)
  expect([foresight.isCommitted, foresight.covers('a')]).toEqual([false, false])
})

test('who waits for its COMMIT is told once: at once where that was said, when it is said, or never behind the end', () => {
  const foresight = new Foresight()
  const told: string[] = []
  foresight.begin('a')
  foresight.whenCommitted(() => told.push('a'))
  foresight.covers('b')
  expect(told).toEqual([])
  foresight.covers('a')
  foresight.covers('a')
  expect(told).toEqual(['a'])
  foresight.end(true)
  foresight.begin('b')
  foresight.covers('b')
  foresight.whenCommitted(() => told.push('b'))
  expect(told).toEqual(['a', 'b'])
  foresight.end(true)
  foresight.begin('c')
  foresight.whenCommitted(() => told.push('c'))
  foresight.end(true)
  foresight.covers('c')
  expect(told).toEqual(['a', 'b'])
})

test('what was foretold too soon needs its hint', () => {
  const foresight = new Foresight()
  foresight.begin('a')
  foresight.end(false)
  expect([foresight.eventId, foresight.covers('a')]).toEqual([undefined, false])
})

test('after three in vain, one after the other, it foresees nothing for a while, and for longer each time', () => {
  let nowMs = 5
  const foresight = new Foresight(() => nowMs)
  const outcomes = [false, false, true, false, false, false]
  for (const [n, isRouted] of outcomes.entries()) {
    expect(foresight.begin(String(n))).toBe(true)
    foresight.end(isRouted)
  }
  for (const waitMs of [250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000]) {
    expect(foresight.begin('later')).toBe(false)
    nowMs += waitMs - 10
    expect(foresight.begin('later')).toBe(false)
    nowMs += 20
    expect(foresight.begin('later')).toBe(true)
    foresight.end(false)
  }
  nowMs += 10_001
  for (const isRouted of [true, false, false]) {
    expect(foresight.begin('later')).toBe(true)
    foresight.end(isRouted)
  }
  expect(foresight.begin('later')).toBe(true)
})
