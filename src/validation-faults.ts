/**
 * What the validator found, as sentences for the integrator's developer: which field, and what to change. Values are
 * not repeated: they may be a patient's. Pure.
 */
import type { ErrorObject } from 'ajv'
import { clipped, type FieldFault } from './errors.ts'
import { notThis } from './webhooks/endpoint-address.ts'

/** Enough to mend a request, and no more than a screen of it. */
const MAX_FAULTS = 20

/** Faults of a combination (`anyOf`, `if`) that only say again what the faults inside it say. */
const WRAPPERS = new Set(['if', 'anyOf', 'oneOf', 'allOf', 'not'])

const TYPES: Record<string, string> = {
  string: 'a string',
  number: 'a number',
  integer: 'a whole number',
  boolean: 'true or false',
  array: 'an array',
  object: 'an object',
  null: 'null',
}

const FORMATS: Record<string, string> = {
  'iso-date-time': 'an existing date and time such as 2026-11-20T10:15:00+05:30',
  'date-time': 'an existing date and time such as 2026-11-20T10:15:00Z',
  date: 'an existing date such as 2026-11-20',
  uri: 'an absolute URL',
  email: 'an e-mail address',
}

/** A fault for each thing that is wrong, in the order in which the validator met them. */
export function faultsOf(errors: ErrorObject[]): FieldFault[] {
  const choices = errors.filter((error) => fieldsToChooseFrom(error).length > 0)
  const isOfChoice = ({ schemaPath }: ErrorObject) =>
    choices.some((choice) => schemaPath.startsWith(`${choice.schemaPath}/`))
  const inner = errors.filter((error) => {
    if (choices.includes(error)) return true
    return !WRAPPERS.has(error.keyword) && !isSaidBetter(error, errors) && !isOfChoice(error)
  })
  const faults = new Map<string, FieldFault>()
  for (const error of inner.length > 0 ? inner : errors) {
    const field = fieldOf(error) || 'body'
    const choice = fieldsToChooseFrom(error)
    const message = choice.length > 0 ? choiceComplaint(error, choice) : complaint(error, field)
    faults.set(`${field} ${message}`, { field, message })
  }
  return [...faults.values()].slice(0, MAX_FAULTS)
}

/** Of an `anyOf` or `oneOf` that only asks for one of several fields: those fields, so that none of them is called required. */
function fieldsToChooseFrom({ keyword, schema }: ErrorObject): string[] {
  if ((keyword !== 'anyOf' && keyword !== 'oneOf') || !Array.isArray(schema)) return []
  const fields = schema.map((branch: { required?: string[] }) =>
    branch.required?.length === 1 ? branch.required[0] : '',
  )
  return fields.every(Boolean) ? (fields as string[]) : []
}

function choiceComplaint({ keyword }: ErrorObject, choice: string[]): string {
  return keyword === 'oneOf'
    ? `must have exactly one of ${choice.join(', ')}`
    : `must have an item in at least one of ${choice.join(', ')}`
}

/** A format says in words what the pattern beside it says in signs, unless that is `https://`, which says more. */
function isSaidBetter(error: ErrorObject, errors: ErrorObject[]): boolean {
  const other = { pattern: 'format', format: 'pattern' }[error.keyword]
  const beside = errors.find(({ keyword, instancePath }) => keyword === other && instancePath === error.instancePath)
  if (!beside) return false
  return isOfHttps(error) ? false : beside.keyword === 'format' || isOfHttps(beside)
}

const isOfHttps = ({ keyword, params }: ErrorObject): boolean => keyword === 'pattern' && HTTPS.includes(params.pattern)

/** `/requestBody/tests/0/cost` is `tests.0.cost`, `/query/labID` is `labID`. */
function fieldOf({ instancePath, keyword, params }: ErrorObject): string {
  const path = instancePath
    .split('/')
    .slice(2)
    .map((segment) => segment.replaceAll('~1', '/').replaceAll('~0', '~'))
  if (keyword === 'required' || keyword === 'dependentRequired') path.push(String(params.missingProperty))
  return path.map(clipped).join('.')
}

function complaint(error: ErrorObject, field: string): string {
  const { keyword, params, message, data, parentSchema } = error
  switch (keyword) {
    case 'required':
      return 'is required'
    case 'dependentRequired':
      return `is required where ${params.property} is sent`
    case 'type':
      // No parameter is a list: where one came, it came several times.
      if (error.instancePath.startsWith('/query/') && Array.isArray(data)) return 'must be there only once'
      return `must be ${[params.type]
        .flat()
        .map((type: string) => TYPES[type] ?? type)
        .join(' or ')}`
    case 'enum':
      return `must be one of ${params.allowedValues.join(', ')}${repeated(field, data)}`
    case 'const':
      return `must be ${JSON.stringify(params.allowedValue)}`
    case 'pattern':
      return FORMATS[parentSchema?.format] && !isOfHttps(error)
        ? `must be ${FORMATS[parentSchema?.format]}${lostPlus(error)}`
        : patternComplaint(params.pattern) + repeated(field, data)
    case 'format':
      return `must be ${FORMATS[params.format] ?? `a valid ${params.format}`}${lostPlus(error)}`
    case 'minLength':
      return params.limit === 1 ? 'must not be empty' : `must have at least ${params.limit} characters`
    case 'maxLength':
      return `must have at most ${params.limit} characters`
    case 'minItems':
      return params.limit === 1 ? 'must not be empty' : `must have at least ${params.limit} items`
    case 'maxItems':
      return `must have at most ${params.limit} items`
    case 'minimum':
      return `must be at least ${params.limit}`
    case 'exclusiveMinimum':
      return `must be more than ${params.limit}`
    case 'maximum':
      return `must be at most ${params.limit}`
    case 'exclusiveMaximum':
      return `must be less than ${params.limit}`
    case 'not':
      return 'is not allowed'
    case 'x-decimals':
      return 'must have at most two decimals'
    default:
      return message ?? 'does not fit the contract'
  }
}

/** In a query an unencoded `+`, as of a time zone, is a space. */
function lostPlus({ instancePath, data }: ErrorObject): string {
  const isLost = typeof data === 'string' && /:\d{2}(?:\.\d+)? \d{2}:?\d{2}$/.test(data)
  return isLost && instancePath.startsWith('/query/') ? '; in a query its + is written %2B' : ''
}

/** Names the value where it can't be a patient's: a misspelt event is easier found that way. */
function repeated(field: string, value: unknown): string {
  if (typeof value !== 'string') return ''
  if (field === 'endpoint') return notThis(value)
  return /^(events\.\d+|protocol)$/.test(field) ? `, not ${clipped(value)}` : ''
}

/** The second is that of an endpoint: the name of a scheme is the same in small and capital letters. */
const HTTPS = ['^https://', '^[Hh][Tt][Tt][Pp][Ss]://']

/** `^[0-9]{10}$` is what the specification says in words. */
function patternComplaint(pattern: string): string {
  const digits = /^\^(?:\[0-9\]|\\d)\{(\d+)\}\$$/.exec(pattern)?.[1]
  if (digits) return `must be exactly ${digits} digits, without symbols or spaces`
  return HTTPS.includes(pattern) ? 'must begin with https://' : `must match ${pattern}`
}
