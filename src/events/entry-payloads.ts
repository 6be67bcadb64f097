/**
 * What is told of leads and bookings: the only constructors of these payloads, typed from the contract.
 */
import type { Booking, Entry, Phlebotomist } from '../crm/entry-rules.ts'
import type { components } from '../generated/client.ts'
import { itemsOf, partiesOf, recorded } from './event-body.ts'
import type { EventType, RecordedEvent } from './event-types.ts'
import type { Cutter } from './payload-bounds.ts'

type Schemas = components['schemas']

export function leadCreated(eventId: string, lead: Entry): RecordedEvent {
  return recorded('lead.created', eventId, lead.createdAt, lead, (cutter): Omit<Schemas['LeadData'], 'truncated'> => ({
    lead: {
      leadId: lead.id,
      version: lead.version,
      phase: 'lead',
      integratorID: lead.integratorId === null ? null : cutter.copiedId(lead.integratorId),
      firstName: cutter.name(lead.firstName),
      lastName: lead.lastName === null ? null : cutter.name(lead.lastName),
      contact: lead.contact,
      source: lead.details.source === undefined ? null : cutter.name(lead.details.source),
      priority: lead.details.priority ?? null,
      assignedTo: lead.assignedTo,
      bookingType: lead.bookingType,
      scheduledAt: lead.scheduledAt?.toISOString() ?? null,
      paymentStatus: lead.paymentStatus,
      paymentMethod: lead.paymentMethod,
      ...partiesOf(lead),
      ...itemsOf(lead.items, cutter),
      discountAmount: lead.discountAmount,
      totalAmount: lead.totalAmount,
      createdAt: lead.createdAt.toISOString(),
    },
  }))
}

/** Created as one, or converted from a lead: both are told at the time of `convertedAt`. */
export function bookingCreated(eventId: string, booking: Booking): RecordedEvent {
  return ofBooking('booking.created', eventId, booking.convertedAt, booking)
}

/** @param previous who was to take the sample before; null: this is the first one */
export function phlebotomistAssigned(
  eventId: string,
  at: Date,
  booking: Booking,
  previous: Phlebotomist | null,
): RecordedEvent {
  return ofBooking('booking.phlebotomist_assigned', eventId, at, booking, (cutter) =>
    previous === null ? {} : { previousPhlebotomist: namedPhlebotomist(previous, cutter) },
  )
}

export function phlebotomistArrived(eventId: string, at: Date, booking: Booking): RecordedEvent {
  return ofBooking('booking.phlebotomist_arrived', eventId, at, booking)
}

export function sampleCollected(eventId: string, at: Date, booking: Booking): RecordedEvent {
  return ofBooking('booking.phlebotomist_sample_collected', eventId, at, booking)
}

export function sampleSubmitted(eventId: string, at: Date, booking: Booking): RecordedEvent {
  return ofBooking('booking.phlebotomist_sample_submitted', eventId, at, booking)
}

/** @param previousScheduledAt the time before */
export function bookingRescheduled(
  eventId: string,
  at: Date,
  booking: Booking,
  previousScheduledAt: Date,
): RecordedEvent {
  return ofBooking('booking.rescheduled', eventId, at, booking, () => ({
    previousScheduledAt: previousScheduledAt.toISOString(),
  }))
}

export function bookingCancelled(eventId: string, at: Date, booking: Booking): RecordedEvent {
  return ofBooking('booking.cancelled', eventId, at, booking)
}

type PreviousFields = Pick<Schemas['BookingPayload'], 'previousPhlebotomist' | 'previousScheduledAt'>

function ofBooking(
  type: EventType,
  eventId: string,
  at: Date,
  booking: Booking,
  previous: (cutter: Cutter) => PreviousFields = () => ({}),
): RecordedEvent {
  return recorded(type, eventId, at, booking, (cutter) => bookingData(booking, cutter, previous(cutter)))
}

function namedPhlebotomist({ id, name }: Phlebotomist, cutter: Cutter): Schemas['Phlebotomist'] {
  return { id, name: cutter.name(name) }
}

function bookingData(
  booking: Booking,
  cutter: Cutter,
  previous: PreviousFields,
): Omit<Schemas['BookingData'], 'truncated'> {
  return {
    booking: {
      leadId: booking.id,
      version: booking.version,
      integratorID: booking.integratorId === null ? null : cutter.copiedId(booking.integratorId),
      firstName: cutter.name(booking.firstName),
      lastName: booking.lastName === null ? null : cutter.name(booking.lastName),
      contact: booking.contact,
      bookingType: booking.bookingType,
      scheduledAt: booking.scheduledAt.toISOString(),
      bookingStatus: booking.bookingStatus,
      paymentStatus: booking.paymentStatus,
      paymentMethod: booking.paymentMethod,
      convertedAt: booking.convertedAt.toISOString(),
      phlebotomist: booking.phlebotomist && namedPhlebotomist(booking.phlebotomist, cutter),
      ...previous,
      ...partiesOf(booking),
      ...itemsOf(booking.items, cutter),
      discountAmount: booking.discountAmount,
      totalAmount: booking.totalAmount,
      createdAt: booking.createdAt.toISOString(),
    },
  }
}
