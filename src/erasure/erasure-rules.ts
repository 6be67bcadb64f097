/**
 * Whom an erasure is about, which records are theirs, and what it leaves and why. Pure.
 */
import { comparableEmail } from '../crm/entry-rules.ts'
import { badRequest, DomainError } from '../errors.ts'
import type { components } from '../generated/operator.ts'
import { comparableName } from '../patients/person-name.ts'

type Schemas = components['schemas']

export type ErasureRequest = Schemas['ErasureRequest']

/** Who has gone with what was erased, or may have. */
export interface Person {
  contact: string
  name: string
  /** Known from records that were erased: others of theirs may be kept. */
  isOfRecord?: boolean
  /** Was a patient of whom no bill and no report is left: the login ends, whatever else is kept. */
  wasPatient?: boolean
  /** Of the bill. */
  patientId?: string | undefined
}

/** Whose data goes. Kept encrypted while the erasure runs. */
export interface ErasureSubject {
  contact: string | null
  email: string | null
  /** As `comparableName` makes it. Null: whoever has the contact. */
  name: string | null
  /** The same for the e-mail. Undefined in those that were ordered before there were two. */
  emailName?: string | null
  patientId: string | null
  leadIds: string[]
  preBookingIds: string[]
  billIds: string[]
  /** Who has gone with the last that was kept of them, whoever was named: found as it goes along. */
  people: Person[]
}

/** In this order; each is done in steps, and a crash goes on with the step that was not committed. */
export const PHASES = ['entries', 'emails', 'records', 'bills', 'patients', 'login', 'events', 'copies'] as const
export type ErasurePhase = (typeof PHASES)[number]

/** What a name, where one is needed, becomes. */
export const ERASED_NAME = 'Erased'

export const NO_COUNTS = {
  entries: 0,
  entryItems: 0,
  preBookings: 0,
  bills: 0,
  reports: 0,
  reportFiles: 0,
  patients: 0,
  dayGuards: 0,
  logins: 0,
  textMessages: 0,
  events: 0,
  messages: 0,
  discardedCopies: 0,
  storedAnswers: 0,
}
export type ErasureCounts = typeof NO_COUNTS

export interface Erasure {
  id: string
  accountId: string
  state: 'running' | 'completed' | 'failed'
  phase: ErasurePhase
  /** Where the phase stands. */
  labId: string | null
  position: string | null
  /** Null when it has ended; while it runs: it was encrypted with another key, and does not open. */
  subject: ErasureSubject | null
  /** Its key was lost: what it has found is erased to the end, and it fails. */
  isGivenUp: boolean
  counts: ErasureCounts
  createdAt: Date
  updatedAt: Date
  finishedAt: Date | null
}

/** @throws 400 for a request that names nobody, or has a field that says nothing */
export function subjectOf(body: ErasureRequest): ErasureSubject {
  // From a script whose variables were not set, it would stand for everybody.
  for (const field of ['email', 'name'] as const) {
    if (body[field]?.trim() === '') throw invalidField(field, 'must not be blank')
  }
  const subject: ErasureSubject = {
    contact: body.contact ?? null,
    email: comparableEmail(body.email) || null,
    name: comparableName(body.name) || null,
    emailName: comparableName(body.name) || null,
    patientId: body.patientId ?? null,
    leadIds: body.leadIds ?? [],
    preBookingIds: body.preBookingIds ?? [],
    billIds: body.billIds ?? [],
    people: [],
  }
  const named = [subject.contact, subject.email, subject.patientId].some((value) => value !== null)
  const listed = [subject.leadIds, subject.preBookingIds, subject.billIds].some((ids) => ids.length > 0)
  if (!named && !listed) {
    throw badRequest('the request names nobody: send contact, email, patientId, leadIds, preBookingIds or billIds')
  }
  if (body.name !== undefined && subject.contact === null && subject.email === null) {
    throw invalidField('name', 'must be sent with contact or email: it narrows what has these')
  }
  return subject
}

function invalidField(field: string, fault: string): DomainError {
  return new DomainError('bad_request', 'invalid_request', `${field} ${fault}`, { fields: [{ field, message: fault }] })
}

/** Of what has the contact. A family shares it: with a name only that person's records. */
export function isOfSubject({ name }: Pick<ErasureSubject, 'name'>, nameOfRecord: string): boolean {
  // That of an erasure which an earlier version began was made comparable in another way.
  return name === null || comparableName(nameOfRecord) === comparableName(name)
}

/** The same of what may have the e-mail. */
export function hasEmailOf(subject: ErasureSubject, email: string | null, nameOfRecord: string): boolean {
  if (email === null || comparableEmail(email) !== subject.email) return false
  const { name, emailName = name } = subject
  return isOfSubject({ name: emailName }, nameOfRecord)
}

export interface RetentionDays {
  payloadRetentionDays: number
  logRetentionDays: number
}

/** What an erasure leaves, and why. */
export function remainsOf({ logRetentionDays }: RetentionDays): Schemas['ErasureRemainder'][] {
  return [
    {
      what: 'entries, pre-bookings, bills and reports without the person',
      why: 'amounts, times, states, parties and items of the catalogue, for the accounts; nothing tells whose they were',
    },
    {
      what: 'patients of whom other bills or reports are kept, with their logins',
      why: 'those need them; name the patient or the contact to erase all that is theirs',
    },
    {
      what: 'delivery log: events and deliveries without body and answer',
      why: 'ids, types and times, which show what was sent to whom',
      days: logRetentionDays,
    },
    { what: 'audit entries and the list of erased records', why: 'ids alone, which show that it was done' },
    {
      what: 'keyed hashes of the contact in the limits of one-time passwords',
      why: 'without them erasing would set back the limits of the day; they can not be read',
      days: 2,
    },
    {
      what: 'Idempotency-Keys: a hash of the request, and where it holds ids alone or refuses the request its answer, encrypted',
      why: 'a repeat must not make the entry anew',
      days: 2,
    },
    { what: 'hashes of barcodes', why: 'a barcode stays unique' },
    { what: 'log files', why: 'they hold ids and numbers and never had anything of a patient', days: logRetentionDays },
    {
      what: 'backups of the database and of the report files',
      why: 'they end with their own retention; erase again after a restore',
    },
    {
      what: 'what was delivered: webhooks, message and SMS gateways, and without gateways the outbox files of development',
      why: 'it has left this service; who got it erases it',
    },
  ]
}

export function toErasureRow(erasure: Erasure, retention: RetentionDays): Schemas['Erasure'] {
  const { id, accountId, state, counts, createdAt, updatedAt, finishedAt } = erasure
  return {
    erasureId: id,
    accountId,
    state,
    erased: counts,
    remains: remainsOf(retention),
    createdAt: createdAt.toISOString(),
    updatedAt: updatedAt.toISOString(),
    ...(finishedAt === null ? {} : { finishedAt: finishedAt.toISOString() }),
  }
}
