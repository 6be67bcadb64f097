/** Shapes of schemas that generators of clients make good types of. */
import { expect, test } from 'vitest'
import { client, operator } from './support/app.ts'

type Json = { [key: string]: Json } | Json[] | string | number | boolean | null

/** Each object in the document that `isFound` says yes to, by where it stands. */
function find(value: Json, isFound: (schema: { [key: string]: Json }) => boolean, where = ''): string[] {
  if (typeof value !== 'object' || value === null) return []
  const own = !Array.isArray(value) && isFound(value) ? [where] : []
  return [...own, ...Object.entries(value).flatMap(([key, inner]) => find(inner as Json, isFound, `${where}/${key}`))]
}

const isObject = (value: Json | undefined): value is { [key: string]: Json } =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

test.each([
  ['client', client],
  ['operator', operator],
] as const)(
  'the %s contract has no schema with fields and alternatives beside them, and no enumeration with null',
  (_, contract) => {
    const { schemas } = (contract.document as object as { components: { schemas: Json } }).components
    const alternatives = ({ properties, anyOf, oneOf }: { [key: string]: Json }) => isObject(properties) && Boolean(anyOf ?? oneOf) // prettier-ignore
    expect(find(schemas, alternatives)).toEqual([])
    expect(find(schemas, (schema) => Array.isArray(schema.enum) && schema.enum.includes(null))).toEqual([])
  },
)

test.each([
  ['client', client],
  ['operator', operator],
] as const)(
  'no schema of the %s contract is called as a security scheme is, but for a capital letter',
  (_, contract) => {
    const { schemas, securitySchemes } = (contract.document as object as { components: Record<string, object> })
      .components
    const names = (of: object | undefined) => Object.keys(of ?? {}).map((name) => name.toLowerCase())
    expect(names(schemas).filter((name) => names(securitySchemes).includes(name))).toEqual([])
  },
)

/** The schemas that this one is made of, each once. */
function partsOf(schema: Json | undefined, schemas: { [key: string]: Json }, seen = new Set<Json>()): Json[] {
  if (!isObject(schema) || seen.has(schema)) return []
  seen.add(schema)
  const inner = [
    schemas[String(schema.$ref).split('/').at(-1)!],
    schema.items,
    schema.additionalProperties,
    schema.then,
  ]
  for (const key of ['allOf', 'anyOf', 'oneOf']) inner.push(...((schema[key] as Json[] | undefined) ?? []))
  inner.push(...Object.values((schema.properties as { [key: string]: Json } | undefined) ?? {}))
  return [schema, ...inner.flatMap((part) => partsOf(part, schemas, seen))]
}

test.each([
  ['client', client],
  ['operator', operator],
] as const)('the %s contract says of every text of a body that U+0000 is refused', (_, contract) => {
  const { schemas } = (contract.document as object as { components: { schemas: { [key: string]: Json } } }).components
  const requests = Object.entries(schemas).filter(([name]) => name.endsWith('Request'))
  const texts = requests
    .flatMap(([, schema]) => partsOf(schema, schemas))
    .filter((part) => isObject(part) && [part.type].flat().includes('string') && !part.enum && !part.format)
  expect(texts.length).toBeGreaterThan(50)
  const isOpen = (part: Json) => !isObject(part) || !part.pattern || new RegExp(String(part.pattern)).test('a\0')
  expect(texts.filter(isOpen)).toEqual([])
})
