import { expect, test } from 'vitest'
import { ReadAhead } from '../../daemon/read-ahead.ts'

const MB = 1024 * 1024

test('one lane may read as much as it wants', () => {
  const readAhead = new ReadAhead()
  expect(readAhead.begin(800)).toBe(800)
  expect(readAhead.isRoomy).toBe(true)
})

test('hundreds of lanes that ask in one moment get no more together than the budget has, and each enough to go on', () => {
  const readAhead = new ReadAhead()
  const granted = Array.from({ length: 300 }, () => readAhead.begin(800))
  expect(Math.min(...granted)).toBe(10)
  const rows = granted.reduce((sum, each) => sum + each, 0)
  expect(rows * 1536).toBeGreaterThan(31 * MB)
  expect(rows * 1536).toBeLessThan(40 * MB)
  expect(readAhead.isRoomy).toBe(false)
})

test('what was read counts until it is sent, rows without much of a body too', () => {
  const readAhead = new ReadAhead()
  for (let n = 0; n < 200; n++) {
    const rows = readAhead.begin(800)
    for (let row = 0; row < rows; row++) readAhead.take(2)
    readAhead.end(rows)
  }
  // As many rows of half a KB as the budget has, whatever their bodies.
  expect(readAhead.begin(800)).toBe(10)
  for (let row = 0; row < 10_000; row++) readAhead.release(2)
  expect(readAhead.begin(800)).toBe(800)
})

test('the size of rows is learnt: where bodies are large, fewer are read at once', () => {
  const readAhead = new ReadAhead()
  readAhead.end(readAhead.begin(800))
  for (let row = 0; row < 300; row++) readAhead.take(64 * 1024)
  expect(readAhead.begin(800)).toBeLessThan(300)
})

test('there is room for more at once while what has been read, or is being read, is sent soon', () => {
  const readAhead = new ReadAhead()
  for (let row = 0; row < 1000; row++) readAhead.take(10)
  expect(readAhead.isRoomy).toBe(true)
  readAhead.begin(500)
  expect(readAhead.isRoomy).toBe(false)
  readAhead.end(500)
  for (let row = 0; row < 500; row++) readAhead.take(10)
  expect(readAhead.isRoomy).toBe(false)
  readAhead.release(10)
  expect(readAhead.isRoomy).toBe(true)
})
