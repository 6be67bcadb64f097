/**
 * Pre-bookings: which values a request may name, what each item costs, and what is stored. Pure.
 */
import { hashValue } from '../crypto.ts'
import { badRequest, clipped, mergeFaults, unknownId, type DomainError } from '../errors.ts'
import type { components } from '../generated/client.ts'

/** openapi-typescript makes the schema's "one of the arrays" alternatives to the whole; the validator does not. */
export type PreBookingRequest = Extract<components['schemas']['PreBookingRequest'], { labID: string }>

/** So much of a list one fault has room for, in characters, beside others in the same error. */
const MOST_NAMED = 1800

/** A test or package. `itemId` and `price` null: unmapped, for staff to resolve. */
export interface PreBookingItem {
  kind: 'test' | 'package'
  itemId: string | null
  name: string
  price: number | null
  /** The names that an unmapped package came with. */
  tests: string[] | null
}

export interface PreBooking {
  id: string
  accountId: string
  labId: string
  /** Raised by each change. */
  version: number
  /** `billed` while it has a bill that is not deleted. */
  status: 'created' | 'billed'
  integratorId: string
  firstName: string
  lastName: string | null
  gender: PreBookingRequest['patient_details']['gender']
  /** In units of `ageType`. */
  age: number
  ageType: PreBookingRequest['patient_details']['age_type']
  leadSource: string
  rateListType: string | null
  doctorId: string | null
  hospitalId: string | null
  barcode: string | null
  items: PreBookingItem[]
  createdAt: Date
}

/** A test or package of the lab as the request's rate list prices it. */
export interface PricedItem {
  id: string
  name: string
  price: number
}

/** What the database knows of the values in a request. */
export interface PreBookingReferences {
  leadSources: string[]
  rateListTypes: string[]
  /** Ids that the field may name; read only where the request names one. */
  doctorIds: string[]
  hospitalIds: string[]
  testsById: Map<string, PricedItem>
  testsByServiceId: Map<string, PricedItem>
  packages: Map<string, PricedItem>
}

/**
 * Trimmed; one that is empty after that counts as absent.
 * @returns undefined where there is none
 */
export function barcodeOf(body: PreBookingRequest): string | undefined {
  return body.barCode?.trim() || undefined
}

/** What the unique key compares: the bytes, so that neither case nor accents nor trailing blanks fold. */
export function barcodeHash(barcode: string): Buffer {
  return hashValue(barcode)
}

/** @throws 400 with every value that the operator's lists, the account or the lab does not have */
export function requireKnownValues(body: PreBookingRequest, known: PreBookingReferences): void {
  const faults: DomainError[] = []
  const requireListed = (field: string, value: string | undefined, allowed: string[], code: string) => {
    if (value !== undefined && !allowed.includes(value)) faults.push(notListed(field, allowed, code, value))
  }
  requireListed('lead_source', body.lead_source, known.leadSources, 'unknown_lead_source')
  requireListed('rate_list_type', body.rate_list_type, known.rateListTypes, 'unknown_rate_list_type')
  requireListed('doctor', body.doctor, known.doctorIds, 'unknown_party')
  requireListed('hospital', body.hospital, known.hospitalIds, 'unknown_party')
  body.mapped_tests?.forEach((sent, index) => {
    if (testOf(sent, known)) return
    const field = sent.id === undefined ? 'service_id' : 'id'
    faults.push(unknownId('test', sent[field] ?? '', `mapped_tests.${index}.${field}`))
  })
  body.mapped_packages?.forEach(({ id }, index) => {
    if (!known.packages.has(id)) faults.push(unknownId('package', id, `mapped_packages.${index}.id`))
  })
  if (faults.length > 0) throw mergeFaults(faults)
}

/**
 * The 400 for a value that is not on the account's list; it names those that are.
 * @param value named too where it is given
 */
export function notListed(field: string, allowed: string[], code: string, value?: string): DomainError {
  const sent = value === undefined ? '' : clipped(value)
  if (allowed.length === 0) {
    const fault = 'can not be sent: the account has none'
    return badRequest(`${field} ${sent && `${sent} `}${fault}`, code, field, fault)
  }
  const fault = `must be one of ${namesOf(allowed)}`
  return badRequest(`${field} ${fault}${sent && `, not ${sent}`}`, code, field, fault)
}

/** Whole names, as many as there is room for. */
function namesOf(allowed: string[]): string {
  let characters = 0
  const named = allowed.filter((name) => (characters += name.length + 2) <= MOST_NAMED)
  const rest = allowed.length > named.length ? ` and ${allowed.length - named.length} more` : ''
  return `${named.join(', ')}${rest}`
}

/** The contract lets through exactly one of the two ids. */
function testOf(
  sent: { id?: string; service_id?: string },
  known: Pick<PreBookingReferences, 'testsById' | 'testsByServiceId'>,
): PricedItem | undefined {
  return sent.id === undefined ? known.testsByServiceId.get(sent.service_id ?? '') : known.testsById.get(sent.id)
}

/** The pre-booking that a request with known values makes. Only named fields are taken over. */
export function makePreBooking(
  body: PreBookingRequest,
  known: PreBookingReferences,
  origin: { id: string; accountId: string; now: Date },
): PreBooking {
  const patient = body.patient_details
  return {
    id: origin.id,
    accountId: origin.accountId,
    labId: body.labID,
    version: 1,
    status: 'created',
    integratorId: body.integrator_id,
    firstName: patient.first_name,
    lastName: patient.last_name ?? null,
    gender: patient.gender,
    age: patient.age,
    ageType: patient.age_type,
    leadSource: body.lead_source,
    rateListType: body.rate_list_type ?? null,
    doctorId: body.doctor ?? null,
    hospitalId: body.hospital ?? null,
    barcode: barcodeOf(body) ?? null,
    items: itemsOf(body, known),
    createdAt: origin.now,
  }
}

function itemsOf(body: PreBookingRequest, known: PreBookingReferences): PreBookingItem[] {
  return [
    ...(body.mapped_tests ?? []).map((sent) => mapped('test', testOf(sent, known)!)),
    ...(body.mapped_packages ?? []).map(({ id }) => mapped('package', known.packages.get(id)!)),
    ...(body.unmapped_tests ?? []).map((name) => unmapped('test', name)),
    ...(body.unmapped_packages ?? []).map((name) => unmapped('package', name)),
    ...(body.unmapped_packages_with_tests ?? []).map(({ package_name, tests }) =>
      unmapped('package', package_name, tests),
    ),
  ]
}

function mapped(kind: PreBookingItem['kind'], { id, name, price }: PricedItem): PreBookingItem {
  return { kind, itemId: id, name, price, tests: null }
}

function unmapped(kind: PreBookingItem['kind'], name: string, tests: string[] | null = null): PreBookingItem {
  return { kind, itemId: null, name, price: null, tests }
}

/** @param barcode of a sample, which the integrator sent itself */
export function barcodeExists(barcode: string): DomainError {
  return badRequest(`barCode ${clipped(barcode)} already exists`, 'barcode_exists', 'barCode', 'already exists')
}
