/**
 * The table of who can reach what: every field of the client contract that carries an id, with every kind of id that a caller
 * could try, in every account mode. Made from the contract, so that a new field is in it, or fails the test until it is named.
 */
import type { ContractChecker, ContractOperation } from '../support/contract-checker.ts'
import { definitionsOf, join, variantsOf, type Schema } from '../support/contract-arbitraries.ts'

/** Which kind of thing a field names, by its path in the request or by its name alone. */
export type IdKind = 'lab' | 'corporate' | 'doctor' | 'hospital' | 'organization' | 'telecaller' | 'test' | 'service' | 'package' | 'webhook' | 'event' | 'recovery' | 'entry' | 'client' | 'refreshToken' | 'otpToken' | 'leadSource' | 'rateList' // prettier-ignore

const KINDS: Record<string, IdKind> = {
  labID: 'lab',
  branchID: 'lab',
  corporateUser: 'corporate',
  organization: 'organization',
  referredOrganization: 'doctor',
  referredHospitalOrganization: 'hospital',
  assignedTo: 'telecaller',
  'tests[].test': 'test',
  'packages[].package': 'package',
  'mapped_tests[].id': 'test',
  'mapped_tests[].service_id': 'service',
  'mapped_packages[].id': 'package',
  doctor: 'doctor',
  hospital: 'hospital',
  lead_source: 'leadSource',
  rate_list_type: 'rateList',
  id: 'webhook',
  _id: 'webhook',
  webhookId: 'webhook',
  eventId: 'event',
  recoveryId: 'recovery',
  leadId: 'entry',
  clientID: 'client',
  refreshToken: 'refreshToken',
  otpToken: 'otpToken',
}

/** Free texts and secrets of their own: they name nothing that another tenant could have. */
const NO_IDS = new Set([
  'clientSecret', 'endpoint', 'integratorID', 'integrator_id', 'title', 'first_name', 'last_name', 'contact', 'country_code',
  'email', 'address', 'pincode', 'location', 'petOwnerName', 'breed', 'animalCategory', 'notes', 'source', 'scheduledAt',
  'paymentMethod', 'otp', 'barCode', 'unmappedTests[].name', 'unmappedPackages[].name', 'patient_details.first_name',
  'If-None-Match', 'patient_details.last_name', 'unmapped_tests[]', 'unmapped_packages[]', 'unmapped_packages_with_tests[].package_name',
  'unmapped_packages_with_tests[].tests[]', 'X-Request-Id', 'Idempotency-Key', 'status', 'type', 'from', 'to', 'since', 'limit',
  'cursor',
]) // prettier-ignore

/** A text that a request can carry: what an id could stand in. */
export interface TextField {
  operation: ContractOperation
  place: 'path' | 'query' | 'header' | 'body'
  path: string
}

export interface IdField extends TextField {
  kind: IdKind
}

interface FullOperation extends ContractOperation {
  parameters?: Schema[]
  requestBody?: { content: Record<string, { schema: Schema } | undefined> }
}

/** @throws for a text field that is neither an id nor known to be none */
export function idFieldsOf(contract: ContractChecker): IdField[] {
  return textFieldsOf(contract).flatMap((field) => {
    const kind = KINDS[field.path]
    if (!kind && !NO_IDS.has(field.path)) {
      throw new Error(`${field.operation.operationId}: is ${field.place} ${field.path} an id?`)
    }
    return kind ? [{ ...field, kind }] : []
  })
}

/** Every parameter, and every text of a body by its path: `tests[].test`. */
export function textFieldsOf(contract: ContractChecker): TextField[] {
  const definitions = definitionsOf(contract.document)
  return contract.operations.flatMap((operation) => {
    const { parameters = [], requestBody } = operation as FullOperation
    const named = parameters.map((parameter) => {
      const { name, in: place } = definitions.resolve(parameter) as unknown as { name: string; in: 'path' | 'query' }
      return { operation, place, path: name }
    })
    const schema = requestBody?.content['application/json']?.schema
    const inBody = schema ? textsIn(schema, '').map((path) => ({ operation, place: 'body' as const, path })) : []
    return [...named, ...inBody]
  })

  function textsIn(schema: Schema, path: string): string[] {
    const fields = variantsOf(definitions.resolve(schema), definitions).flatMap((variant) => {
      if (variant.enum || variant.const !== undefined) return []
      if (variant.type === 'array') return textsIn(variant.items ?? {}, `${path}[]`)
      if (variant.properties) {
        return Object.entries(variant.properties).flatMap(([name, property]) => textsIn(property, join(path, name)))
      }
      return [variant.type].flat().includes('string') ? [path] : []
    })
    return [...new Set(fields)]
  }
}

/** An id of the field's kind in ways that no answer may tell from one that nobody has. */
export function malformed(id: string): [kind: string, value: unknown][] {
  return [
    ['id and x', `${id}x`],
    ['upper case', id.toUpperCase() === id ? id.toLowerCase() : id.toUpperCase()],
    ['blank after', `${id} `],
    ['blank before', ` ${id}`],
    ['cut by one', id.slice(0, -1)],
    ['with a wildcard', `${id.slice(0, -1)}%`],
    ['with a quote', `${id}' OR '1'='1`],
    ['0 as text', '0'],
    ['null as text', 'null'],
    ['not ASCII', `${id.slice(0, -1)}\u00e9`],
  ]
}

/** What no string field of a body takes. */
export const NO_TEXTS: [kind: string, value: unknown][] = [
  ['integer', 7],
  ['0', 0],
  ['null', null],
  ['array', ['x']],
  ['object', { $ne: '' }],
  ['true', true],
]

/** `tests[].test` set in a body: the list then has this one item. */
export function withField(body: Record<string, unknown>, path: string, value: unknown): Record<string, unknown> {
  const [list, field] = path.split('[].')
  return field === undefined ? { ...body, [path]: value } : { ...body, [list!]: [{ [field]: value }] }
}
