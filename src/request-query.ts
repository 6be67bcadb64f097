/**
 * The query of a request as its operation's contract reads it. Pure.
 */
import type { Operation } from 'openapi-backend'

/** JavaScript, and the validator where it coerces, also take `0x10`, `1e1` and ` 10` for numbers. */
const WHOLE_NUMBER = /^-?[0-9]+$/

/** Only what the contract knows. What is not what its schema asks for is left as it was sent, and refused by the validator. */
export function queryOf({ parameters = [] }: Operation, url: string): Record<string, unknown> {
  const start = url.indexOf('?')
  if (start < 0) return {}
  const sent = new URLSearchParams(url.slice(start))
  const known: Record<string, unknown> = {}
  for (const parameter of parameters) {
    if ('$ref' in parameter || parameter.in !== 'query') continue
    const values = sent.getAll(parameter.name)
    const { type } = (parameter.schema ?? {}) as { type?: unknown }
    if (values.length > 0) known[parameter.name] = values.length === 1 ? valueOf(values[0]!, type) : values
  }
  return known
}

function valueOf(sent: string, type: unknown): unknown {
  if (type === 'integer' && WHOLE_NUMBER.test(sent)) return Number(sent)
  if (type === 'boolean' && (sent === 'true' || sent === 'false')) return sent === 'true'
  return sent
}
