/**
 * From a JSON Schema of the contract to values that fit it (`arbitraryOf`) and, from one that fits, to values that don't
 * (`mutationsOf`: one fault each). Knows nothing of the service; ids and other values that must exist come in as `given`.
 */
import fc, { type Arbitrary } from 'fast-check'

export interface Schema {
  $ref?: string
  type?: string | string[]
  enum?: unknown[]
  const?: unknown
  properties?: Record<string, Schema>
  required?: string[]
  additionalProperties?: boolean | Schema
  items?: Schema
  minItems?: number
  maxItems?: number
  minLength?: number
  maxLength?: number
  pattern?: string
  format?: string
  minimum?: number
  maximum?: number
  'x-decimals'?: number
  anyOf?: Schema[]
  oneOf?: Schema[]
  allOf?: Schema[]
  if?: Schema
  then?: Schema
}

/** Values for a field by its path: `labID`, `tests[].test`, or `*.labID` for it at any depth. Null: never sent. */
export type Given = Record<string, Arbitrary<unknown> | null>

export interface Definitions {
  resolve(schema: Schema): Schema
}

/** Follows `$ref` within the document; what stands beside it is kept. */
export function definitionsOf(document: object): Definitions {
  return {
    resolve(schema) {
      let current = schema
      while (current.$ref !== undefined) {
        const { $ref, ...beside } = current
        const target = $ref
          .slice(2)
          .split('/')
          .reduce<unknown>((value, key) => (value as Record<string, unknown>)[key], document)
        current = { ...(target as Schema), ...beside }
      }
      return current
    },
  }
}

/** Letters of many kinds, with what databases, JSON and HTML trip over. Never U+0000, which is refused everywhere. */
const CHARACTERS = [...'abcXYZ019 _-.,;:/\\\'"`<>&%$#@!?{}[]()=+*|~^\t\n\r', '\u00e9', '\u0130', '\u0939', '\u4e2d', '\ufeff', '\u202e', '\u2028', '\u0301', '\u{1f600}', '\u{10ffff}'] // prettier-ignore

/** The contract's pattern of what may be any text without it. */
const ANY_TEXT = String.raw`^[^\x00]*$`

const TEXT = fc.array(fc.constantFrom(...CHARACTERS), { minLength: 1, maxLength: 24 }).map((list) => list.join(''))

const FORMATS: Record<string, Arbitrary<string>> = {
  'iso-date-time': fc.oneof(
    fc
      .date({ min: new Date('1990-01-01'), max: new Date('2090-01-01'), noInvalidDate: true })
      .map((date) => date.toISOString()),
    fc.constantFrom(
      '2026-11-21T07:30', '2026-11-21T07:30:59', '2028-02-29T00:00:00.123456789+05:30', '2026-11-21T23:59:59-1100',
      '2026-11-21T07:30:00+05', '2026-11-21T07:30:00.1Z',
    ), // prettier-ignore
  ),
  'date-time': fc
    .date({ min: new Date('1990-01-01'), max: new Date('2090-01-01'), noInvalidDate: true })
    .map((date) => date.toISOString()),
  date: fc
    .date({ min: new Date('1990-01-01'), max: new Date('2090-01-01'), noInvalidDate: true })
    .map((date) => date.toISOString().slice(0, 10)),
  email: fc.stringMatching(/^[a-z0-9]{1,12}@[a-z0-9]{1,12}\.example$/),
  uri: fc.stringMatching(/^https:\/\/[a-z]{1,12}\.example\.org\/[a-z0-9]{0,8}$/),
}

/** Values that fit the schema, and mostly exist: what `given` names is taken from there. */
export function arbitraryOf(given: Given, definitions: Definitions, schema: Schema, path = ''): Arbitrary<unknown> {
  const own = givenFor(given, path)
  if (own) return own
  const resolved = definitions.resolve(schema)
  const variants = variantsOf(resolved, definitions)
  if (variants.length > 1) {
    return fc.oneof(...variants.map((variant) => arbitraryOf(given, definitions, variant, path)))
  }
  const single = variants[0]!
  if (single.const !== undefined) return fc.constant(single.const)
  if (single.enum) return fc.constantFrom(...single.enum)
  const types = [single.type ?? (single.properties ? 'object' : 'string')].flat()
  return fc.oneof(...types.map((type) => ofType(type, single, given, definitions, path)))
}

export function givenFor(given: Given, path: string): Arbitrary<unknown> | null | undefined {
  return path in given ? given[path] : given[`*.${path.split('.').at(-1)}`]
}

function ofType(type: string, schema: Schema, given: Given, definitions: Definitions, path: string) {
  switch (type) {
    case 'object':
      return objectOf(schema, given, definitions, path)
    case 'array': {
      const minLength = schema.minItems ?? 0
      const items = arbitraryOf(given, definitions, schema.items ?? {}, `${path}[]`)
      return fc.array(items, { minLength, maxLength: Math.min(schema.maxItems ?? 4, Math.max(minLength, 4)) })
    }
    case 'integer':
      return numberOf({ ...schema, 'x-decimals': 0 })
    case 'number':
      return numberOf(schema)
    case 'boolean':
      return fc.boolean()
    case 'null':
      return fc.constant(null)
    default:
      return stringOf(schema)
  }
}

function objectOf(schema: Schema, given: Given, definitions: Definitions, path: string): Arbitrary<unknown> {
  const required = new Set(schema.required)
  const fields = Object.entries(schema.properties ?? {}).filter(
    ([name]) => givenFor(given, join(path, name)) !== null || required.has(name),
  )
  const record = fc.record(
    Object.fromEntries(
      fields.map(([name, property]) => [name, arbitraryOf(given, definitions, property, join(path, name))]),
    ),
    { requiredKeys: fields.map(([name]) => name).filter((name) => required.has(name)) },
  )
  return record
}

export function join(path: string, name: string): string {
  return path === '' ? name : `${path}.${name}`
}

/** Decimals as they are written, so that none carries the error of a multiplication. */
function numberOf({ minimum = -1000, maximum = minimum + 2000, 'x-decimals': decimals }: Schema): Arbitrary<number> {
  if (decimals === undefined) {
    return fc.oneof(fc.double({ min: minimum, max: maximum, noNaN: true }), fc.constantFrom(minimum, maximum))
  }
  const steps = 10 ** decimals
  const [from, to] = [Math.round(minimum * steps), Math.round(Math.max(maximum, minimum) * steps)]
  return fc
    .oneof(
      fc.integer({ min: from, max: Math.min(to, from + 1_000_000) }),
      fc.bigInt({ min: BigInt(from), max: BigInt(to) }).map(Number),
      fc.constantFrom(from, to),
    )
    .map((n) => n / steps)
}

function stringOf({ minLength = 0, maxLength = 4096, pattern, format }: Schema): Arbitrary<string> {
  if (format !== undefined && FORMATS[format]) return FORMATS[format]
  if (pattern !== undefined && pattern !== ANY_TEXT) return fc.stringMatching(new RegExp(pattern))
  const text = TEXT.map((value) => [...value].slice(0, maxLength).join('')).filter(
    (value) => [...value].length >= minLength,
  )
  const longest = fc.constantFrom('x', '\u0939', '\u{1f600}').map((character) => character.repeat(maxLength))
  return fc.oneof(
    { arbitrary: text, weight: 30 },
    { arbitrary: longest, weight: maxLength > 1000 ? 1 : 3 },
    { arbitrary: fc.constant('x'.repeat(minLength)), weight: 2 },
  )
}

/** The plain schemas whose values together are those of `anyOf`, `oneOf`, `allOf` and `if`/`then`. */
export function variantsOf(schema: Schema, definitions: Definitions): Schema[] {
  if (schema.then && alwaysHolds(schema)) {
    const { if: _, then: held, ...rest } = schema
    return variantsOf({ ...rest, ...held }, definitions)
  }
  const { anyOf, oneOf, allOf, if: condition, then, ...base } = schema
  let variants = [base as Schema]
  for (const part of allOf ?? []) variants = variants.map((known) => merge(known, definitions.resolve(part)))
  if (condition && then) {
    variants = variants.flatMap((known) => [merge(merge(known, condition), then), without(known, condition)])
  }
  if (oneOf) {
    const names = oneOf.flatMap((branch) => definitions.resolve(branch).required ?? [])
    variants = variants.flatMap((known) =>
      oneOf.map((branch) => {
        const chosen = definitions.resolve(branch)
        const others = names.filter((name) => !chosen.required?.includes(name))
        return isOnlyRequired(chosen) ? omit(merge(known, chosen), others) : merge(known, chosen)
      }),
    )
  }
  if (anyOf) {
    variants = variants.flatMap((known) => anyOf.map((branch) => merge(known, definitions.resolve(branch))))
  }
  return variants
}

/** Of an object's schema. */
const alwaysHolds = ({ if: condition }: Schema) => Object.keys(condition ?? {}).join() === 'type'

const isOnlyRequired = (schema: Schema) => Object.keys(schema).join() === 'required'

function merge(base: Schema, part: Schema): Schema {
  const properties = { ...base.properties }
  for (const [name, property] of Object.entries(part.properties ?? {})) {
    properties[name] = properties[name] ? { ...properties[name], ...property } : property
  }
  const required = [...new Set([...(base.required ?? []), ...(part.required ?? [])])]
  return { ...base, ...part, ...(Object.keys(properties).length > 0 ? { properties } : {}), required }
}

function omit(schema: Schema, names: string[]): Schema {
  const properties = Object.fromEntries(
    Object.entries(schema.properties ?? {}).filter(([name]) => !names.includes(name)),
  )
  return { ...schema, properties, required: (schema.required ?? []).filter((name) => !names.includes(name)) }
}

/** Where the condition asks for a constant: the other values of that field, or none. */
function without(schema: Schema, condition: Schema): Schema {
  const properties = { ...schema.properties }
  for (const [name, { const: excluded }] of Object.entries(condition.properties ?? {})) {
    const known = properties[name]
    if (known?.enum) properties[name] = { ...known, enum: known.enum.filter((value) => value !== excluded) }
  }
  return { ...schema, properties }
}
