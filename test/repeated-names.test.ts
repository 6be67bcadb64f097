import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { findRepeatedName } from '../src/repeated-names.ts'

describe('a repeated name', () => {
  test.each([
    ['{"a":1,"a":2}', ['a']],
    ['{"":1,"":1}', ['']],
    ['{"a":1,"\\u0061":2}', ['a']],
    ['[{"a":{"b":[{"c":1,"c":2}]}}]', [0, 'a', 'b', 0, 'c']],
    ['{"a":[[1,2],[],{"b":[3]},{"c":{},"d":[],"c":1}]}', ['a', 3, 'c']],
    ['{"a":"\\"","b":"\\\\","a":1}', ['a']],
    ['{"x":{"a":1},"a":{"a":1},"x":1}', ['x']],
  ])('is found: %s', (json, path) => {
    expect(findRepeatedName(json)).toEqual(path)
  })

  test.each([
    '{}',
    '[]',
    '"a"',
    '{"a":{"a":{"a":1}}}',
    '[{"a":1},{"a":2}]',
    '{"a":"a","b":"a"}',
    '{"a":"\\",\\"a\\":1"}',
  ])('is not seen where there is none: %s', (json) => {
    expect(findRepeatedName(json)).toBeUndefined()
  })

  test('is never seen in what JSON.stringify writes, and always where one was put', () => {
    const object = fc.dictionary(fc.string({ unit: 'binary', minLength: 1 }), fc.jsonValue({ maxDepth: 4 }), {
      minKeys: 1,
    })
    fc.assert(
      fc.property(object, fc.nat(), (value, n) => {
        const json = JSON.stringify(value, null, n % 3)
        expect(findRepeatedName(json)).toBeUndefined()
        const names = Object.keys(value)
        const name = names[n % names.length]!
        const twice = `${json.trimEnd().slice(0, -1)},${JSON.stringify(name)}:null}`
        expect(findRepeatedName(twice)).toEqual([name])
        expect(findRepeatedName(`{"outer":[0,${twice}]}`)).toEqual(['outer', 1, name])
      }),
      { numRuns: 2000 },
    )
  })

  test('is looked for without recursion: a text may be nested without end', () => {
    const levels = 200_000
    expect(findRepeatedName(`${'{"a":'.repeat(levels)}{"b":1,"b":2}${'}'.repeat(levels)}`)?.at(-1)).toBe('b')
  })
})
