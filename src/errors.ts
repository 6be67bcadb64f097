/**
 * The domain's refusals. They know nothing of HTTP; `error-response.ts` gives each kind its status.
 */
export type ErrorKind =
  | 'bad_request'
  | 'unauthorized'
  | 'forbidden'
  | 'not_found'
  | 'method_not_allowed'
  | 'conflict'
  | 'precondition_failed'
  | 'payload_too_large'
  | 'range_not_satisfiable'
  | 'unsupported_media_type'
  | 'unprocessable'
  | 'too_many_requests'
  | 'unavailable'

export interface FieldFault {
  /** Dotted path in the body, or the name of a parameter. */
  field: string
  message: string
}

export interface ErrorExtras {
  fields?: FieldFault[]
  /** How long to wait before a further try can succeed, in seconds. */
  retryAfterSeconds?: number
  /** The entry that a duplicate clashes with. */
  leadId?: string
  /** Further response headers (rate limits, allowed methods). */
  headers?: Record<string, string>
  /** The fault behind it, for the log alone. */
  cause?: unknown
}

export class DomainError extends Error {
  readonly kind: ErrorKind
  /** A stable word for programs, e.g. `lab_unknown`. */
  readonly code: string
  readonly extras: ErrorExtras

  /** @param details a sentence for the integrator's developer that says what to change; never a patient's data */
  constructor(kind: ErrorKind, code: string, details: string, extras: ErrorExtras = {}) {
    super(details, { cause: extras.cause })
    this.kind = kind
    this.code = code
    this.extras = extras
  }
}

/** @param field whose fault it is, where it is one field's; then `fault` says what is wrong with it */
export function badRequest(details: string, code = 'invalid_request', field?: string, fault = details): DomainError {
  return new DomainError('bad_request', code, details, field ? { fields: [{ field, message: fault }] } : {})
}

/** One 400 for several: the code of the first, the sentences and fields of all. */
export function mergeFaults(faults: DomainError[]): DomainError {
  const [first] = faults
  if (!first || faults.length === 1) return first ?? badRequest('the request is at fault')
  const shown = faults.slice(0, MAX_MERGED)
  return new DomainError('bad_request', first.code, shown.map(({ message }) => message).join('; '), {
    fields: shown.flatMap(({ extras }) => extras.fields ?? []),
  })
}

export function unauthorized(details: string, code = 'unauthorized'): DomainError {
  return new DomainError('unauthorized', code, details)
}

/** Enough to mend a request, and no more than a screen of it. */
const MAX_MERGED = 20

/** A value from outside as an error may repeat it: short, on one line. Never a patient's. */
export function clipped(value: string): string {
  const line = value.toWellFormed().replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]/g, '\ufffd')
  return line.length > 64 ? `${line.slice(0, 64).toWellFormed()}…` : line
}

/** One answer for a lab of another account, an unknown one, and one that is inactive where an active one is needed. */
export function labForbidden(field: 'labID' | 'branchID'): DomainError {
  return new DomainError('forbidden', 'lab_forbidden', `${field} does not belong to the account`)
}

/** The lab's own people may know that it is there. */
export function labInactive(): DomainError {
  return conflict('the lab is inactive: activate it first', 'invalid_state')
}

/**
 * The 400 for an id that the account or the lab does not have.
 * @param what as the code names it: `test`, `party`
 * @param name as the sentence names it, where that is another word: `corporateUser`
 */
export function unknownId(what: string, id: string, field: string, name: string = what): DomainError {
  return new DomainError('bad_request', `unknown_${what}`, `unknown ${name} ${clipped(id)}`, {
    fields: [{ field, message: 'is unknown' }],
  })
}

export function notFound(details: string, code = 'not_found'): DomainError {
  return new DomainError('not_found', code, details)
}

export function conflict(details: string, code: string, extras: ErrorExtras = {}): DomainError {
  return new DomainError('conflict', code, details, extras)
}

export function unavailable(details: string, retryAfterSeconds = 1, cause?: unknown): DomainError {
  return new DomainError('unavailable', 'unavailable', details, { retryAfterSeconds, cause })
}

/** Nothing was done, and nothing is wrong with it: it came when too much else did. */
export function overloaded(): DomainError {
  const details = 'the service has more requests than it can answer; try again shortly'
  return new DomainError('unavailable', 'overloaded', details, { retryAfterSeconds: 1 })
}
