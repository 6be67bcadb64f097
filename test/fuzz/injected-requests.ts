/**
 * The places of a request that take a text, as its contract has them, and a request with another text in one of them.
 */
import type { CallOptions } from '../support/app.ts'
import { definitionsOf, join, variantsOf, type Schema } from '../support/contract-arbitraries.ts'
import type { Parameter } from './operation-runs.ts'

export interface Place {
  where: 'query' | 'path' | 'header' | 'body'
  /** In a body the path of the field; `[]` is the first item of a list. */
  name: string
}

/** Of these a request has no other text: the caller sends them in each. */
const OWN_HEADERS = ['X-Request-Id', 'Idempotency-Key', 'User-Agent', 'Accept']
/** What Node itself refuses to send in a header. */
const NOT_IN_HEADERS = /[^\t\x20-\x7e\x80-\xff]/g

export function placesOf(parameters: Parameter[], schema: Schema | undefined, document: object): Place[] {
  const definitions = definitionsOf(document)
  const visit = (part: Schema, path: string): string[] =>
    variantsOf(definitions.resolve(part), definitions).flatMap((variant) => {
      if (variant.properties) return Object.entries(variant.properties).flatMap(([name, item]) => visit(item, join(path, name))) // prettier-ignore
      if (variant.items) return visit(variant.items, `${path}[]`)
      // What is no text takes none: that it is refused is for the other tests.
      return [variant.type].flat().includes('string') || variant.enum ? [path] : []
    })
  return [
    ...parameters.map(({ in: where, name }) => ({ where, name })),
    ...OWN_HEADERS.map((name) => ({ where: 'header' as const, name })),
    ...[...new Set(schema ? visit(schema, '') : [])].map((name) => ({ where: 'body' as const, name })),
  ]
}

/** @param path values of the parameters in the path */
export function injected(
  { where, name }: Place,
  text: string,
  base: CallOptions,
  path: Record<string, string> = {},
): { options: CallOptions; pathValues: Record<string, string> } {
  if (where === 'query') return { options: { ...base, query: { ...base.query, [name]: text } }, pathValues: path }
  if (where === 'path') return { options: base, pathValues: { ...path, [name]: encodeURIComponent(text) || '%20' } }
  if (where === 'header') {
    // One that can be used as the request's id is logged as that.
    const value = name === 'X-Request-Id' ? `!${text}` : text
    const headers = { ...base.headers, [name.toLowerCase()]: value.replace(NOT_IN_HEADERS, '') }
    return { options: { ...base, headers }, pathValues: path }
  }
  return { options: { ...base, body: replaced(base.body, name.split('.'), text) }, pathValues: path }
}

function replaced(value: unknown, [first, ...rest]: string[], text: string): unknown {
  if (first === undefined) return text
  const [name, ...lists] = first.split('[]')
  const owner = typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}
  const below = lists.reduce<unknown>((item) => (Array.isArray(item) ? item[0] : undefined), owner[name!])
  const inner = replaced(below, rest, text)
  return { ...owner, [name!]: lists.reduce<unknown>((item) => [item], inner) }
}
