/**
 * Requests with one fault each, made from one that fits: in its body, its query, its path or its token.
 */
import type { CallOptions } from '../support/app.ts'
import type { Definitions, Schema } from '../support/contract-arbitraries.ts'
import { mutationsOf, rawMutationsOf } from '../support/contract-mutations.ts'
import type { Prepared } from './operation-hints.ts'
import type { Parameter } from './operation-runs.ts'

/** A request with its one fault, and the statuses that it may get. */
export interface FaultyCall {
  what: string
  options: CallOptions
  pathValues?: Record<string, string>
  statuses: number[]
}

/** A request that fits, and what the contract says of its operation. */
export interface BaseRequest {
  options: CallOptions
  prepared: Prepared
  needsToken: boolean
  parameters: Parameter[]
  bodySchema: Schema | undefined
  needsBody: boolean
  /** Whether it may be sent as the body. */
  fits: (body: unknown) => boolean
  definitions: Definitions
}

export function faultyCalls(base: BaseRequest): FaultyCall[] {
  return [...bodyFaults(base), ...queryFaults(base), ...pathFaults(base), ...(base.needsToken ? tokenFaults(base) : [])]
}

function bodyFaults({ options, bodySchema, needsBody, fits, definitions }: BaseRequest): FaultyCall[] {
  const { body: valid, ...rest } = options
  if (!bodySchema || valid === undefined) return []
  const mutations = mutationsOf(valid, bodySchema, definitions)
    .filter(({ body }) => !fits(body))
    .map(({ what, body }) => ({ what, options: { ...rest, body }, statuses: [400] }))
  const raw = rawMutationsOf(valid as object).map(({ what, raw: rawBody, headers, status }) => ({
    what: `body ${what}`,
    options: { ...rest, rawBody, headers: { ...rest.headers, ...headers } },
    statuses: [status],
  }))
  // An optional body that is cut to nothing is none.
  const all: FaultyCall[] = [...mutations, ...raw]
  return all.filter((call) => needsBody || call.options.rawBody?.length !== 0)
}

function queryFaults({ parameters, options: base }: BaseRequest): FaultyCall[] {
  const queried = parameters.filter((parameter) => parameter.in === 'query')
  return queried.flatMap(({ name, required, schema }) => {
    const { [name]: sent, ...others } = base.query ?? {}
    const search = (...pairs: string[]) => {
      const rest = new URLSearchParams(others as Record<string, string>).toString()
      return `?${[rest, ...pairs].filter(Boolean).join('&')}`
    }
    const value = encodeURIComponent(sent ?? 'x')
    const wrong: [what: string, search: string][] = [
      ['is empty', search(`${name}=`)],
      ['has no value', search(name)],
      ['is sent twice', search(`${name}=${value}`, `${name}=${value}`)],
    ]
    if (required) wrong.push(['is missing', search()], ['is in brackets', search(`${name}[]=${value}`)])
    if (required) wrong.push(['is in upper case', search(`${name.toUpperCase()}_=${value}`)])
    if (schema.maxLength !== undefined)
      wrong.push(['is one too long', search(`${name}=${'x'.repeat(schema.maxLength + 1)}`)])
    if (schema.enum) wrong.push(['is no known word', search(`${name}=nope`)])
    if ([schema.type].flat().includes('integer')) {
      for (const text of ['x', '1.5', '1e99', ' ', String((schema.minimum ?? 0) - 1)]) wrong.push([`is ${text}`, search(`${name}=${encodeURIComponent(text)}`)]) // prettier-ignore
      if (schema.maximum !== undefined) wrong.push(['is one too large', search(`${name}=${schema.maximum + 1}`)])
    }
    if (schema.format !== undefined) wrong.push(['has no such format', search(`${name}=2026-02-30`)])
    return wrong.map(([what, text]) => {
      const { query: _, ...rest } = base
      return { what: `${name} ${what}`, options: { ...rest, search: text }, statuses: [400] }
    })
  })
}

function pathFaults({ options, prepared, parameters }: BaseRequest): FaultyCall[] {
  return parameters
    .filter((parameter) => parameter.in === 'path')
    .flatMap(({ name }) => {
      const id = prepared.path?.[name] ?? 'x'
      const others = ['x', '0', 'null', '%00', '%20', `${id}x`, `${id}%20`, id.toUpperCase(), '%E2%82%AC', "'%20OR%201=1", '..%2f..', 'x'.repeat(5000), '__proto__'] // prettier-ignore
      return others.map((value) => ({
        what: `${name} is ${value.slice(0, 30)}`,
        options,
        pathValues: { ...prepared.path, [name]: value },
        // What a guess has not got right may be said first.
        statuses: prepared.isGuess ? [400, 403, 404, 409] : [404],
      }))
    })
}

function tokenFaults({ options: base }: BaseRequest): FaultyCall[] {
  const token = base.token!
  const none = { what: 'no token', options: { ...base, token: undefined }, statuses: [401] }
  const values = [`Bearer ${token}x`, `Bearer ${token.slice(0, -2)}`, 'Bearer', 'Bearer ', `Basic ${token}`, token, `Bearer ${token}, Bearer ${token}`, `Bearer ${token} ${token}`, 'Bearer null', `Bearer ${'a'.repeat(60_000)}`] // prettier-ignore
  return [
    none,
    ...values.map((authorization) => ({
      what: `authorization ${authorization.slice(0, 12)}`,
      options: { ...base, token: undefined, headers: { ...base.headers, authorization } },
      statuses: [401],
    })),
  ]
}
