import { describe, expect, test } from 'vitest'
import { newId } from '../src/ids.ts'
import { cutPage, decodeCursor, encodeCursor, pageById, pageOf } from '../src/paging.ts'

describe('a cursor', () => {
  test.each([[['a']], [['', 'é "\\']], [['a', 'b', 'c']]])('holds the sort key %j as it is', (key) => {
    expect(decodeCursor(encodeCursor(key), key.length)).toEqual(key)
  })

  test.each([
    ['of another list', encodeCursor(['a']), 2],
    ['with something else than texts', Buffer.from('[1]').toString('base64url'), 1],
    ['that is no list', Buffer.from('"a"').toString('base64url'), 1],
    ['that is no JSON', 'x', 1],
    ['that is empty', '', 1],
  ])('%s is 400', (_, cursor, keyLength) => {
    expect(() => decodeCursor(cursor, keyLength)).toThrow('cursor must be the nextCursor of the page before')
  })

  test('of a list by id must hold an id', () => {
    const id = newId(0)
    expect(pageById({ cursor: encodeCursor([id]), limit: 7 })).toEqual({ limit: 7, afterId: id })
    expect(() => pageById({ cursor: encodeCursor(['é']) })).toThrow('cursor must be')
  })
})

test('a page holds 50 rows unless said otherwise, and begins at the first', () => {
  expect(pageOf({})).toEqual({ limit: 50, after: undefined })
  expect(pageOf({ limit: '3' })).toEqual({ limit: 3, after: undefined })
})

test('there is a next page only where there is a further row', () => {
  const rows = ['a', 'b', 'c']
  expect(cutPage(rows, 3, (row) => [row])).toEqual({ shown: rows, nextCursor: null })
  expect(cutPage(rows, 2, (row) => [row])).toEqual({ shown: ['a', 'b'], nextCursor: encodeCursor(['b']) })
  expect(cutPage([] as string[], 2, (row) => [row])).toEqual({ shown: [], nextCursor: null })
})
