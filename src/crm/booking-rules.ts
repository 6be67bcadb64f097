/**
 * What staff can do with a lead or a booking, and what becomes of it. Pure.
 */
import { badRequest } from '../errors.ts'
import type { components } from '../generated/client.ts'
import { nextState, type ActionTable } from '../state-rules.ts'
import type { Booking, Entry, Phlebotomist } from './entry-rules.ts'

type Schemas = components['schemas']

/** A lead has no status of its own; a booking's is its `bookingStatus`. */
export type EntryState = 'Lead' | Schemas['BookingStatus']

export type EntryAction =
  | 'convert'
  | 'assignPhlebotomist'
  | 'arrive'
  | 'collectSample'
  | 'submitSample'
  | 'reschedule'
  | 'cancel'
  | 'mapItems'
  | 'bill'
  | 'sendQuotation'
  | 'sendBooking'
  | 'sendPhlebotomist'

/** An action leaves these as they are. */
const same = <State extends string>(...states: State[]) =>
  Object.fromEntries(states.map((state) => [state, state])) as Partial<Record<State, State>>

const BEFORE_THE_SAMPLE = ['Scheduled', 'Phlebotomist Assigned', 'Phlebotomist Arrived'] as const
const NOT_CANCELLED = [...BEFORE_THE_SAMPLE, 'Sample Collected', 'Sample Submitted'] as const

export const ENTRY_ACTIONS: ActionTable<EntryState, EntryAction> = {
  convert: { done: 'converted', events: ['booking.created'], next: { Lead: 'Scheduled' } },
  assignPhlebotomist: {
    done: 'given a phlebotomist',
    events: ['booking.phlebotomist_assigned'],
    next: { Scheduled: 'Phlebotomist Assigned', 'Phlebotomist Assigned': 'Phlebotomist Assigned' },
  },
  arrive: {
    done: 'marked as arrived at',
    events: ['booking.phlebotomist_arrived'],
    next: { 'Phlebotomist Assigned': 'Phlebotomist Arrived' },
  },
  collectSample: {
    done: 'marked as collected',
    events: ['booking.phlebotomist_sample_collected'],
    next: { 'Phlebotomist Arrived': 'Sample Collected' },
  },
  submitSample: {
    done: 'marked as submitted',
    events: ['booking.phlebotomist_sample_submitted'],
    next: { 'Sample Collected': 'Sample Submitted' },
  },
  reschedule: {
    done: 'rescheduled',
    events: ['booking.rescheduled'],
    next: same('Scheduled', 'Phlebotomist Assigned'),
  },
  cancel: {
    done: 'cancelled',
    events: ['booking.cancelled'],
    next: Object.fromEntries(BEFORE_THE_SAMPLE.map((state) => [state, 'Cancelled'])),
  },
  mapItems: { done: 'mapped', events: [], next: same('Lead', ...NOT_CANCELLED) },
  bill: { done: 'billed', events: ['bill.created'], next: same(...NOT_CANCELLED) },
  sendQuotation: { done: 'quoted', events: ['quotation.send'], next: same('Lead', ...BEFORE_THE_SAMPLE) },
  sendBooking: { done: 'confirmed by message', events: ['booking.send'], next: same(...BEFORE_THE_SAMPLE) },
  sendPhlebotomist: {
    done: 'announced with its phlebotomist',
    events: ['phlebotomist.send'],
    next: same('Phlebotomist Assigned', 'Phlebotomist Arrived'),
  },
}

export function entryStateOf(entry: Entry): EntryState {
  return entry.phase === 'lead' ? 'Lead' : entry.bookingStatus!
}

/** @throws 409 */
export function nextEntryState(action: EntryAction, entry: Entry): EntryState {
  return nextState(ENTRY_ACTIONS, entry.phase === 'lead' ? 'entry' : 'booking', action, entryStateOf(entry))
}

/** What converting a lead may set; what is left out stays as the lead has it. */
export interface Conversion {
  bookingType: Schemas['BookingType'] | undefined
  scheduledAt: Date | undefined
  paymentStatus: Schemas['PaymentStatus'] | undefined
  paymentMethod: string | undefined
}

/**
 * Specification: server-set defaults for phase `booking`.
 * @throws 400 when neither the request nor the lead says where or when
 */
export function convertedFrom(lead: Entry, conversion: Conversion, now: Date): Booking {
  const bookingType = conversion.bookingType ?? lead.bookingType
  const scheduledAt = conversion.scheduledAt ?? lead.scheduledAt
  if (bookingType === null) throw missing('bookingType')
  if (scheduledAt === null) throw missing('scheduledAt')
  return {
    ...lead,
    version: lead.version + 1,
    phase: 'booking',
    bookingType,
    scheduledAt,
    bookingStatus: 'Scheduled',
    paymentStatus: conversion.paymentStatus ?? lead.paymentStatus ?? 'Pending',
    paymentMethod: conversion.paymentMethod ?? lead.paymentMethod,
    convertedAt: now,
  }
}

function missing(field: 'bookingType' | 'scheduledAt') {
  return badRequest(
    `${field} is required: the lead has none`,
    'invalid_request',
    field,
    'is required: the lead has none',
  )
}

/** The booking after an action that its table has allowed. */
export function changedBooking(
  booking: Booking,
  state: EntryState,
  change: { phlebotomist?: Phlebotomist; scheduledAt?: Date } = {},
): Booking {
  return {
    ...booking,
    ...change,
    version: booking.version + 1,
    bookingStatus: state as Schemas['BookingStatus'],
  }
}
