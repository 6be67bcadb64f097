/**
 * Requests with exactly one fault, made from one that fits. Each says what was done, so that a failure reads by itself.
 */
import { join, variantsOf, type Definitions, type Schema } from './contract-arbitraries.ts'

export interface Mutation {
  what: string
  /** The whole body with its fault. */
  body: unknown
}

/** A body that is spoiled as text, and the status that it must get. */
export interface RawMutation {
  what: string
  raw: string | Buffer
  headers?: Record<string, string>
  status: number
}

const SAMPLES: [type: string, value: unknown][] = [
  ['string', 'x'],
  ['string', '1'],
  ['number', 1.5],
  ['integer', 7],
  ['boolean', true],
  ['null', null],
  ['array', []],
  ['array', ['x']],
  ['object', {}],
  ['object', { $ne: null }],
]

/**
 * Every fault that the schema lets one think of at every place of the body. A few of them fit after all (an optional field
 * that is taken away): whoever uses them asks a validator.
 */
export function mutationsOf(body: unknown, schema: Schema, definitions: Definitions): Mutation[] {
  const mutations: Mutation[] = []
  const replace = (path: (string | number)[], value: unknown, what: string) => {
    mutations.push({ what: `${path.join('.') || 'body'} ${what}`, body: replaced(body, path, value) })
  }

  const visit = (value: unknown, given: Schema, path: (string | number)[]): void => {
    const resolved = definitions.resolve(given)
    for (const [fault, what] of faultsFor(value, resolved)) replace(path, fault, what)
    if (Array.isArray(value)) {
      value.slice(0, 2).forEach((item, index) => visit(item, resolved.items ?? {}, [...path, index]))
    } else if (typeof value === 'object' && value !== null) {
      const variants = variantsOf(resolved, definitions)
      const properties = Object.assign({}, ...variants.map((variant) => variant.properties ?? {}), resolved.properties)
      for (const [name, property] of Object.entries<Schema>(properties)) {
        const at = [...path, name]
        const owner = value as Record<string, unknown>
        if (!(name in owner)) {
          for (const [fault, what] of faultsFor(undefined, definitions.resolve(property))) replace(at, fault, what)
        } else {
          mutations.push({ what: `${join(path.join('.'), name)} is missing`, body: removed(body, at) })
          const renamed = name.toUpperCase() === name ? name.toLowerCase() : name.toUpperCase()
          mutations.push({
            what: `${join(path.join('.'), name)} is called ${renamed}`,
            body: replaced(removed(body, at), [...path, renamed], owner[name]),
          })
          visit(owner[name], property, at)
        }
      }
    }
  }
  visit(body, schema, [])
  return mutations
}

function* faultsFor(value: unknown, schema: Schema): Generator<[fault: unknown, what: string]> {
  for (const [type, sample] of SAMPLES) yield [sample, `is ${type} ${JSON.stringify(sample)}`]
  for (const known of (schema.enum ?? []).filter((item) => typeof item === 'string').slice(0, 3)) {
    yield [`${known} `, 'has a blank at the end']
    yield [known.toUpperCase(), 'is in upper case']
    yield [known.slice(0, -1), 'is cut by one']
    yield [`${known}\u0000`, 'ends with U+0000']
  }
  if (schema.minLength !== undefined) yield ['x'.repeat(schema.minLength - 1), 'is one too short']
  if (schema.maxLength !== undefined) {
    yield ['x'.repeat(schema.maxLength + 1), 'is one too long']
    yield ['\u{1f600}'.repeat(schema.maxLength + 1), 'is one too long, in pairs']
  }
  if (schema.pattern !== undefined || schema.format !== undefined) {
    for (const text of ['', ' ', '\n', '12345', '1234567890\n', '\u0967'.repeat(10), '2026-02-30T10:00:00Z']) {
      yield [text, `is ${JSON.stringify(text)}`]
    }
    if (typeof value === 'string') yield [`${value}\n`, 'has a newline at the end']
    if (typeof value === 'string') yield [` ${value}`, 'has a blank before it']
    if (typeof value === 'string') yield [`${value}\u0000`, 'ends with U+0000']
  }
  if (schema.minimum !== undefined) yield [schema.minimum - 1, 'is one too small']
  if (schema.minimum !== undefined) yield [schema.minimum - 0.01, 'is a little too small']
  if (schema.maximum !== undefined) yield [schema.maximum + 1, 'is one too large']
  if (schema['x-decimals'] !== undefined) {
    for (const number of [0.001, 1.005, 0.1 + 0.2, 1e-7]) yield [number, `is ${number}`]
  }
  if ([schema.type].flat().includes('integer')) yield [1.5, 'has a fraction']
  if ([schema.type].flat().some((type) => type === 'number' || type === 'integer')) yield [1e300, 'is huge']
  if (schema.maxItems !== undefined) {
    const item = Array.isArray(value) && value.length > 0 ? value[0] : 'x'
    yield [Array.from({ length: schema.maxItems + 1 }, () => item), 'has one item too many']
  }
  if (schema.minItems !== undefined && schema.minItems > 0) yield [[], 'is empty']
}

function replaced(value: unknown, [first, ...rest]: (string | number)[], by: unknown): unknown {
  if (first === undefined) return by
  if (Array.isArray(value)) return value.with(Number(first), replaced(value[Number(first)], rest, by))
  const owner = (value ?? {}) as Record<string, unknown>
  return { ...owner, [first]: replaced(owner[String(first)], rest, by) }
}

function removed(value: unknown, [first, ...rest]: (string | number)[]): unknown {
  if (Array.isArray(value)) return value.with(Number(first), removed(value[Number(first)], rest))
  const { [String(first)]: known, ...others } = value as Record<string, unknown>
  return rest.length === 0 ? others : { ...others, [String(first)]: removed(known, rest) }
}

const KIB = 1024
export const MAX_BODY_BYTES = 256 * KIB

const nested = (levels: number) => `${'['.repeat(levels)}${']'.repeat(levels)}`

/** As JSON: fields that no operation knows, with what is refused of a known one. */
const IGNORED_FIELDS = [
  '"unknown":1e999',
  '"unknown":[-1e999]',
  '"unknown":"\\ud800"',
  '"unknown":"\\u0000"',
  '"a\\u0000b":1',
  '"unknown":1,"unknown":1',
  '"unknown":[{"a":1,"\\u0061":2}]',
  `"unknown":[${'1,'.repeat(100)}1]`,
  `"unknown":"${'x'.repeat(4097)}"`,
]

/** The same body with one of them. @param n chooses which */
export function withIgnoredField(body: object, n: number): string {
  const field = IGNORED_FIELDS[n % IGNORED_FIELDS.length]!
  const inside = JSON.stringify(body).slice(1, -1)
  return `{${field}${inside === '' ? '' : ','}${inside}}`
}

/** What can be wrong with the bytes, whatever the operation takes. @param body that fits, an object */
export function rawMutationsOf(body: object): RawMutation[] {
  const text = JSON.stringify(body)
  const inside = text.slice(1, -1)
  const comma = inside === '' ? '' : ','
  const withField = (field: string) => `{${field}${comma}${inside}}`
  const [firstName] = Object.keys(body)
  const bytes = Buffer.from(text)
  const json = 'application/json'
  return [
    ...[0, 1, Math.floor(text.length / 2), text.length - 1].map((length) => ({
      what: `is cut after ${length} characters`,
      raw: text.slice(0, length),
      status: 400,
    })),
    ...['null', '[]', `[${text}]`, '""', '0', 'true', JSON.stringify(text), `${text}${text}`, `${text},`].map(
      (raw) => ({
        what: `is ${raw.slice(0, 20)}`,
        raw,
        status: 400,
      }),
    ),
    ...['NaN', 'Infinity', "'x'", '01', '.5', '+1', '0x1', 'undefined', '"\t"', '"\\x"', '[1,]'] // prettier-ignore
      .map((value) => ({
        what: `has an unknown field with ${value}`,
        raw: withField(`"unknown":${value}`),
        status: 400,
      })),
    ...(firstName === undefined
      ? []
      : [
          {
            what: `has ${firstName} twice`,
            raw: withField(
              `${JSON.stringify(firstName)}:${JSON.stringify((body as Record<string, unknown>)[firstName])}`,
            ),
            status: 400,
          },
        ]),
    { what: 'has a comment', raw: `/* */${text}`, status: 400 },
    { what: 'has a raw zero byte', raw: Buffer.concat([bytes, Buffer.from([0])]), status: 400 },
    { what: 'is not UTF-8', raw: Buffer.from(withField('"unknown":"\u00e9"'), 'latin1'), status: 400 },
    { what: 'is UTF-16', raw: Buffer.from(text, 'utf16le'), status: 400 },
    { what: 'is nested 33 deep', raw: withField(`"unknown":${nested(32)}`), status: 400 },
    { what: 'is nested 20,000 deep', raw: withField(`"unknown":${nested(20_000)}`), status: 400 },
    { what: 'is one byte too large', raw: text.padEnd(MAX_BODY_BYTES + 1 - (bytes.length - text.length)), status: 413 },
    { what: 'is 1 MB', raw: text.padEnd(KIB * KIB), status: 413 },
    ...['text/plain', 'application/xml', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x', 'application/json-patch+json', 'application/jsonx', 'json', '*/*', `${json}; charset=utf-16`, `${json}, ${json}`] // prettier-ignore
      .map((type) => ({ what: `has the type ${type}`, raw: text, headers: { 'content-type': type }, status: 415 })),
    ...['gzip', 'br', 'deflate', 'identity, gzip'].map((encoding) => ({
      what: `has the encoding ${encoding}`,
      raw: text,
      headers: { 'content-encoding': encoding },
      status: 415,
    })),
  ]
}
