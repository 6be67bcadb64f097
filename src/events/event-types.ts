/**
 * The events, and the only constructors of what is delivered, typed from the contract. One body for every webhook.
 */
import type { Entry, EntryItem } from '../crm/entry-rules.ts'
import type { components } from '../generated/client.ts'
import { publicEventId } from '../ids.ts'
import { boundedBody, type Cutter } from './payload-bounds.ts'

type Schemas = components['schemas']

export type EventType = Schemas['EventName']

/** In the order of the specification. */
export const EVENT_TYPES = [
  'bill.created',
  'bill.deleted',
  'bill.completed',
  'report.completed',
  'lead.created',
  'booking.created',
  'booking.phlebotomist_assigned',
  'booking.phlebotomist_arrived',
  'booking.phlebotomist_sample_collected',
  'booking.phlebotomist_sample_submitted',
  'booking.rescheduled',
  'booking.cancelled',
  'report.send',
  'bill.send',
  'booking.send',
  'phlebotomist.send',
  'quotation.send',
] as const satisfies readonly EventType[]

/** A fact as it is stored and delivered. */
export interface RecordedEvent {
  /** Without the prefix that it has on the wire. */
  id: string
  accountId: string
  labId: string
  type: EventType
  /** The record that it is about. */
  subjectId: string
  corporateId: string | null
  doctorId: string | null
  hospitalId: string | null
  /** The exact bytes that every webhook gets and that signatures cover. */
  body: Buffer
}

/** None of the events that happen: asked for by hand, for one webhook, and never fanned out. */
export interface TestEvent extends Omit<RecordedEvent, 'type'> {
  type: 'webhook.test'
}

/** What the envelope and the routing take from a record. */
interface Subject {
  id: string
  accountId: string
  labId: string
  integratorId: string | null
  corporateId: string | null
  doctorId: string | null
  hospitalId: string | null
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

export function leadCreated(eventId: string, lead: Entry): RecordedEvent {
  return recorded('lead.created', eventId, lead.createdAt, lead, (cutter): Omit<Schemas['LeadData'], 'truncated'> => ({
    lead: {
      leadId: lead.id,
      version: lead.version,
      phase: 'lead',
      integratorID: cutter.id(lead.integratorId),
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

export function bookingCreated(eventId: string, booking: Booking): RecordedEvent {
  return recorded('booking.created', eventId, booking.convertedAt, booking, (cutter) => bookingData(booking, cutter))
}

/** @param webhook the one that gets it */
export function webhookTest(
  eventId: string,
  webhook: { id: string; accountId: string; labId: string },
  at: Date,
): TestEvent {
  const type = 'webhook.test'
  const body: Schemas['WebhookTestEvent'] = {
    id: publicEventId(eventId),
    type,
    timestamp: at.toISOString(),
    labID: webhook.labId,
    integratorID: null,
    data: { test: { webhookId: webhook.id, note: TEST_NOTE } },
  }
  const noParties = { corporateId: null, doctorId: null, hospitalId: null }
  const { id, accountId, labId } = webhook
  return { id: eventId, accountId, labId, type, subjectId: id, ...noParties, body: Buffer.from(JSON.stringify(body)) }
}

const TEST_NOTE = 'A test delivery that was asked for by hand. Nothing has happened.'

function bookingData(booking: Booking, cutter: Cutter): Omit<Schemas['BookingData'], 'truncated'> {
  return {
    booking: {
      leadId: booking.id,
      version: booking.version,
      integratorID: cutter.id(booking.integratorId),
      firstName: cutter.name(booking.firstName),
      lastName: booking.lastName === null ? null : cutter.name(booking.lastName),
      contact: booking.contact,
      bookingType: booking.bookingType,
      scheduledAt: booking.scheduledAt.toISOString(),
      bookingStatus: booking.bookingStatus,
      paymentStatus: booking.paymentStatus,
      paymentMethod: booking.paymentMethod,
      convertedAt: booking.convertedAt.toISOString(),
      phlebotomist: null,
      ...partiesOf(booking),
      ...itemsOf(booking.items, cutter),
      discountAmount: booking.discountAmount,
      totalAmount: booking.totalAmount,
      createdAt: booking.createdAt.toISOString(),
    },
  }
}

/** @param at the time of the event */
function recorded(
  type: EventType,
  eventId: string,
  at: Date,
  subject: Subject,
  data: (cutter: Cutter) => object,
): RecordedEvent {
  const { accountId, labId, corporateId, doctorId, hospitalId } = subject
  const organization = doctorId ?? hospitalId
  const body = boundedBody((cutter) => ({
    id: publicEventId(eventId),
    type,
    timestamp: at.toISOString(),
    labID: labId,
    integratorID: subject.integratorId === null ? null : cutter.id(subject.integratorId),
    ...(corporateId === null ? {} : { corporateUser: corporateId }),
    ...(organization === null ? {} : { organization }),
    data: { ...data(cutter), ...cutter.mark },
  }))
  return { id: eventId, accountId, labId, type, subjectId: subject.id, corporateId, doctorId, hospitalId, body }
}

function partiesOf({ corporateId, doctorId, hospitalId }: Subject) {
  return { corporateUser: corporateId, referredOrganization: doctorId, referredHospitalOrganization: hospitalId }
}

type PayloadItems = Pick<
  Schemas['BookingPayload'],
  | 'tests'
  | 'testsCount'
  | 'packages'
  | 'packagesCount'
  | 'unmappedTests'
  | 'unmappedTestsCount'
  | 'unmappedPackages'
  | 'unmappedPackagesCount'
>

function itemsOf(all: EntryItem[], cutter: Cutter): PayloadItems {
  const mapped = (kind: EntryItem['kind']) =>
    cutter.list(
      all
        .filter((item) => item.kind === kind)
        .flatMap(({ itemId, name, price }) => {
          return itemId === null ? [] : [{ id: itemId, name, price }]
        }),
    )
  const unmapped = (kind: EntryItem['kind']) =>
    cutter.list(all.filter((item) => item.kind === kind && item.itemId === null))
  const tests = mapped('test')
  const packages = mapped('package')
  const unmappedTests = unmapped('test')
  const unmappedPackages = unmapped('package')
  return {
    tests: tests.items.map(({ id, name, price }) => ({ test: id, name: cutter.name(name), cost: price })),
    ...(tests.count === undefined ? {} : { testsCount: tests.count }),
    packages: packages.items.map(({ id, name, price }) => ({ package: id, name: cutter.name(name), price })),
    ...(packages.count === undefined ? {} : { packagesCount: packages.count }),
    unmappedTests: unmappedTests.items.map(({ name, price }) => ({ name: cutter.name(name), cost: price })),
    ...(unmappedTests.count === undefined ? {} : { unmappedTestsCount: unmappedTests.count }),
    unmappedPackages: unmappedPackages.items.map(({ name, price }) => ({ name: cutter.name(name), price })),
    ...(unmappedPackages.count === undefined ? {} : { unmappedPackagesCount: unmappedPackages.count }),
  }
}
