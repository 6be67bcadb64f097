/**
 * Leads and bookings: what a request must have, what the server adds, and which rows keep the day's duplicates out. Pure.
 */
import type { Account, AccountMode } from '../accounts/accounts-repository.ts'
import { PARTY_FIELD_KINDS, unknownParty, type PartyKind } from '../catalogue/party-rules.ts'
import { hashValue } from '../crypto.ts'
import { badRequest, clipped, DomainError, labForbidden, labInactive, mergeFaults, unknownId } from '../errors.ts'
import type { components } from '../generated/client.ts'
import { paymentMethodsOf, type CrmSettings } from './crm-settings-rules.ts'
import type { NotificationKind } from './notifications-repository.ts'
import { nextTelecaller, type Candidate } from './telecaller-rules.ts'
import { localDay, parseDateTime } from './zoned-time.ts'

type Schemas = components['schemas']
/** As integrators send it; staff may leave the integrator's id out. */
export type EntryRequest = Omit<Schemas['EntryRequest'], 'integratorID'> & { integratorID?: string | undefined }

/** A test or package of an entry. `itemId` null: unmapped, for staff to resolve. */
export interface EntryItem {
  kind: 'test' | 'package'
  itemId: string | null
  name: string
  price: number | null
}

/** Descriptive fields that no rule reads, under their names on the wire. */
const DETAIL_FIELDS = [
  'title',
  'country_code',
  'age',
  'age_type',
  'gender',
  'weight',
  'height',
  'address',
  'pincode',
  'location',
  'petOwnerName',
  'breed',
  'animalCategory',
  'notes',
  'source',
  'priority',
  'customFields',
] as const satisfies readonly (keyof EntryRequest)[]

export type EntryDetails = Pick<EntryRequest, (typeof DETAIL_FIELDS)[number]>

/** Who takes the sample. */
export interface Phlebotomist {
  id: string
  name: string
}

export interface Entry {
  id: string
  accountId: string
  labId: string
  /** Raised by each change. */
  version: number
  phase: 'lead' | 'booking'
  /** Null where staff made the entry for no integrator. */
  integratorId: string | null
  firstName: string
  lastName: string | null
  contact: string | null
  email: string | null
  corporateId: string | null
  doctorId: string | null
  hospitalId: string | null
  bookingType: Schemas['BookingType'] | null
  scheduledAt: Date | null
  bookingStatus: Schemas['BookingStatus'] | null
  paymentStatus: Schemas['PaymentStatus'] | null
  paymentMethod: string | null
  convertedAt: Date | null
  /** The telecaller. */
  assignedTo: string | null
  phlebotomist: Phlebotomist | null
  discountAmount: number | null
  totalAmount: number | null
  details: EntryDetails
  items: EntryItem[]
  createdAt: Date
}

/** A booking has these; a lead may not. */
export interface Booking extends Entry {
  phase: 'booking'
  bookingType: Schemas['BookingType']
  scheduledAt: Date
  bookingStatus: Schemas['BookingStatus']
  paymentStatus: Schemas['PaymentStatus']
  convertedAt: Date
}

/** A body has room for tens of thousands of keys; the first of them are enough to see what is wrong. */
const MAX_NAMED_FIELDS = 20

export const PARTY_FIELDS = ['corporateUser', 'referredOrganization', 'referredHospitalOrganization'] as const

/**
 * What the request alone shows, beyond its schema.
 * @returns when the sample is to be taken, where that is said
 * @throws 400
 */
export function requireSoundEntry(body: EntryRequest, account: Account): Date | null {
  requireEntryParty(body, account.mode)
  return body.scheduledAt === undefined ? null : requireScheduledAt(body.scheduledAt, account)
}

/** @throws 400 for a date or a time that does not exist */
export function requireScheduledAt(text: string, account: Account): Date {
  const scheduledAt = parseDateTime(text, account.timeZone)
  if (scheduledAt) return scheduledAt
  const fault = 'must be an existing date and time such as 2026-11-20T10:15:00+05:30'
  throw badRequest(`scheduledAt ${fault}`, 'invalid_request', 'scheduledAt', fault)
}

/** Any one of the three, or several: "never both" is about `corporateUser` with `organization` elsewhere. */
function requireEntryParty(body: EntryRequest, mode: AccountMode): void {
  if (mode === 'party_scoped' && PARTY_FIELDS.every((field) => body[field] === undefined)) {
    throw new DomainError(
      'bad_request',
      'party_required',
      'a party-scoped account must send corporateUser, referredOrganization or referredHospitalOrganization',
      { fields: PARTY_FIELDS.map((field) => ({ field, message: 'one of the three is required' })) },
    )
  }
}

/** What the database knows of the ids in a request. */
export interface EntryReferences {
  labIsActive: boolean
  partyKinds: Map<string, PartyKind>
  testNames: Map<string, string>
  packageNames: Map<string, string>
  settings: CrmSettings
  /** Whether `assignedTo` is an active telecaller of the account. */
  assigneeIsActive: boolean
  /** For an entry that is assigned automatically: who was last, and who is there. */
  lastTelecallerId: string | null
  candidates: Candidate[]
}

/**
 * @throws 403 when the lab is unknown, another account's or inactive; then 400 with every id and value that the account or
 * the lab does not have
 */
export function requireKnownReferences(body: EntryRequest, known: EntryReferences): void {
  if (!known.labIsActive) throw labForbidden('branchID')
  requireKnownIds(body, known)
}

/**
 * The same for staff, for a lab that the account has.
 * @throws 400 with every id and value that the account or the lab does not have; then 409 when the lab is inactive
 */
export function requireReferencesOfStaff(body: EntryRequest, known: EntryReferences): void {
  requireKnownIds(body, known)
  if (!known.labIsActive) throw labInactive()
}

function requireKnownIds(body: EntryRequest, known: EntryReferences): void {
  const faults: DomainError[] = []
  for (const field of PARTY_FIELDS) {
    const id = body[field]
    if (id === undefined) continue
    const kinds: readonly (PartyKind | undefined)[] = PARTY_FIELD_KINDS[field]
    if (!kinds.includes(known.partyKinds.get(id))) faults.push(unknownParty(field, id))
  }
  body.tests?.forEach(({ test }, index) => {
    if (!known.testNames.has(test)) faults.push(unknownId('test', test, `tests.${index}.test`))
  })
  body.packages?.forEach(({ package: id }, index) => {
    if (!known.packageNames.has(id)) faults.push(unknownId('package', id, `packages.${index}.package`))
  })
  if (body.assignedTo !== undefined && !known.assigneeIsActive) {
    faults.push(unknownId('telecaller', body.assignedTo, 'assignedTo'))
  }
  const { settings } = known
  const unknownFields = Object.keys(body.customFields ?? {}).filter((key) => !settings.customFields.includes(key))
  for (const key of unknownFields.slice(0, MAX_NAMED_FIELDS)) {
    faults.push(unknownId('custom_field', key, `customFields.${clipped(key)}`, 'custom field'))
  }
  const methodFault = paymentMethodFault(body.paymentMethod, settings)
  if (methodFault) faults.push(methodFault)
  if (faults.length > 0) throw mergeFaults(faults)
}

/** The 400 for a payment method that the account does not have; undefined where there is nothing to say. */
export function paymentMethodFault(paymentMethod: string | undefined, settings: CrmSettings): DomainError | undefined {
  const methods = paymentMethodsOf(settings)
  if (paymentMethod === undefined || methods.includes(paymentMethod)) return undefined
  const fault = `must be one of ${methods.join(', ')}`
  return badRequest(`paymentMethod ${fault}`, 'unknown_payment_method', 'paymentMethod', fault)
}

export interface EntryOrigin {
  id: string
  accountId: string
  scheduledAt: Date | null
  now: Date
}

/** The entry that a sound request makes. Only named fields are taken over: what is not known is not stored. */
export function makeEntry(body: EntryRequest, known: EntryReferences, origin: EntryOrigin): Entry {
  const isBooking = body.phase === 'booking'
  return {
    id: origin.id,
    accountId: origin.accountId,
    labId: body.branchID,
    version: 1,
    phase: isBooking ? 'booking' : 'lead',
    integratorId: body.integratorID ?? null,
    firstName: body.first_name,
    lastName: body.last_name ?? null,
    contact: body.contact ?? null,
    email: body.email ?? null,
    corporateId: body.corporateUser ?? null,
    doctorId: body.referredOrganization ?? null,
    hospitalId: body.referredHospitalOrganization ?? null,
    bookingType: body.bookingType ?? null,
    scheduledAt: origin.scheduledAt,
    bookingStatus: isBooking ? 'Scheduled' : null,
    paymentStatus: body.paymentStatus ?? (isBooking ? 'Pending' : null),
    paymentMethod: body.paymentMethod ?? null,
    convertedAt: isBooking ? origin.now : null,
    assignedTo: isAssignedAutomatically(body) ? automaticAssignee(known) : (body.assignedTo ?? null),
    phlebotomist: null,
    discountAmount: body.discountAmount ?? null,
    totalAmount: body.totalAmount ?? null,
    details: detailsOf(body),
    items: itemsOf(body, known),
    createdAt: origin.now,
  }
}

/** Specification, lead create, rule 1: a lead that names nobody, and nothing else, is assigned automatically. */
export function isAssignedAutomatically({ phase, assignedTo }: EntryRequest): boolean {
  return phase !== 'booking' && assignedTo === undefined
}

function automaticAssignee({ settings, candidates, lastTelecallerId }: EntryReferences): string | null {
  return nextTelecaller(settings.assignStrategy, candidates, lastTelecallerId)
}

/** What staff are told of the entry (specification: notification kinds on CRM creation). */
export function notificationKindOf(entry: Entry): NotificationKind {
  return isBooking(entry) ? 'BOOKING_CONFIRMED' : 'NEW_LEAD'
}

function detailsOf(body: EntryRequest): EntryDetails {
  return Object.fromEntries(DETAIL_FIELDS.flatMap((field) => (body[field] === undefined ? [] : [[field, body[field]]])))
}

/** Mapped ones carry the catalogue's name, unmapped ones the name that was sent. */
export function itemsOf(body: EntryRequest, known: EntryReferences): EntryItem[] {
  return [
    ...(body.tests ?? []).map(({ test, cost }) => item('test', test, known.testNames.get(test)!, cost)),
    ...(body.packages ?? []).map(({ package: id, price }) => item('package', id, known.packageNames.get(id)!, price)),
    ...(body.unmappedTests ?? []).map(({ name, cost }) => item('test', null, name, cost)),
    ...(body.unmappedPackages ?? []).map(({ name, price }) => item('package', null, name, price)),
  ]
}

function item(kind: EntryItem['kind'], itemId: string | null, name: string, price: number | undefined): EntryItem {
  return { kind, itemId, name, price: price ?? null }
}

/** A booking has everything that its event needs: the schema asks for it, or `makeEntry` sets it. */
export function isBooking(entry: Entry): entry is Booking {
  return entry.phase === 'booking'
}

/** A row that only one entry a day can have. */
export interface DayGuard {
  /** `YYYY-MM-DD` in the account's time zone. */
  day: string
  kind: 'contact' | 'email'
  valueHash: Buffer
}

/** The same for e-mails that are the same. */
export function comparableEmail(email: string | null | undefined): string {
  return (email ?? '').trim().toLowerCase()
}

/**
 * The rows that keep out a second entry with the same contact or e-mail on the same day. Always the contact first: two
 * requests that cross (one's contact with the other's e-mail) then wait for each other in one direction only.
 */
export function dayGuardsOf(entry: Entry, timeZone: string): DayGuard[] {
  const day = localDay(entry.createdAt.getTime(), timeZone)
  const email = comparableEmail(entry.email)
  return [
    ...(entry.contact ? [{ day, kind: 'contact' as const, valueHash: hashValue(entry.contact) }] : []),
    ...(email ? [{ day, kind: 'email' as const, valueHash: hashValue(email) }] : []),
  ]
}
