/**
 * What a contract refuses before a handler is asked.
 */
import type { Context, OpenAPIBackend } from 'openapi-backend'
import { DomainError, unauthorized } from './errors.ts'
import { faultsOf } from './validation-faults.ts'

/** Faults that `error.details` spells out; `error.fields` has the rest. */
const MAX_SENTENCES = 5

/** A path that can't be decoded is taken as it is written: it names nothing, and is refused like any other name that does. */
export function decodable(path: string): string {
  try {
    decodeURIComponent(path)
    return path
  } catch {
    return path.replaceAll('%', '%25')
  }
}

export function methodNotAllowed(contract: OpenAPIBackend, path: string): DomainError {
  const allowed = ['get', 'post', 'put', 'patch', 'delete'].filter((method) =>
    contract.matchOperation({ method, path, headers: {} }),
  )
  const methods = allowed.map((method) => method.toUpperCase()).join(', ')
  return new DomainError('method_not_allowed', 'method_not_allowed', `this path takes ${methods}`, {
    headers: { Allow: methods },
  })
}

/** The fault of the first scheme in the contract's order: the integrator's token before the patient's. */
export function firstSecurityFault(context: Context): unknown {
  const schemes = (context.operation.security ?? []).flatMap((requirement) => Object.keys(requirement))
  for (const scheme of schemes) {
    const result = context.security[scheme] as { error?: unknown } | undefined
    if (result?.error) return result.error
  }
  return unauthorized('a credential is missing')
}

export function validationFault(context: Context): DomainError {
  const fields = faultsOf(context.validation.errors ?? [])
  const sentences = fields.map(({ field, message }) => `${field} ${message}`)
  const details = sentences.slice(0, MAX_SENTENCES).join('; ')
  return new DomainError('bad_request', 'invalid_request', details, { fields })
}
