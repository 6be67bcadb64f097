import { expect, test } from 'vitest'
import { isKnownPlace, type JsonSchema } from '../src/known-fields.ts'

const schema: JsonSchema = {
  properties: {
    name: {},
    tests: { items: { properties: { test: {} } } },
    chosen: { additionalProperties: true },
    texts: { additionalProperties: {} },
    closed: { additionalProperties: false },
  },
  allOf: [{ properties: { all: {} } }],
  anyOf: [{ properties: { any: {} } }],
  oneOf: [{ properties: { one: { oneOf: [{ properties: { a: {} } }] } } }],
  then: { properties: { then: {} } },
  else: { properties: { otherwise: {} } },
}

test.each<[string, (string | number)[]]>([
  ['the body', []],
  ['a field', ['name']],
  ['an item of a list', ['tests', 3]],
  ['a field of an item', ['tests', 3, 'test']],
  ['whatever is in an object of the caller’s own', ['chosen', 'a', 0, 'b']],
  ['a text of names that the caller chooses', ['texts', 'a']],
  ...['all', 'any', 'one', 'then', 'otherwise'].map((name): [string, string[]] => ['a part of the schema', [name]]),
  ['a part of a part', ['one', 'a']],
])('%s is known: %j', (_, path) => {
  expect(isKnownPlace(schema, path)).toBe(true)
})

test.each<(string | number)[]>([
  ['other'],
  ['Name'],
  ['constructor'],
  ['name', 'a'],
  ['name', 0],
  ['tests', 'test'],
  ['tests', 3, 'cost'],
  ['texts', 'a', 'b'],
  ['closed', 'a'],
  ['one', 'b'],
])('%j of %j is not known', (...path) => {
  expect(isKnownPlace(schema, path)).toBe(false)
  expect(isKnownPlace(undefined, path)).toBe(false)
})
