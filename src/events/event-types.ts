/**
 * The events' names and what is stored of one. The only constructors of what is delivered stand in `entry-payloads.ts`,
 * `bill-payloads.ts`, `report-payloads.ts` and `message-payloads.ts`, typed from the contract: one body for every webhook.
 */
import type { components } from '../generated/client.ts'
import { publicEventId } from '../ids.ts'

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
