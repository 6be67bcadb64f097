/**
 * What is told of bills: the only constructors of these payloads, typed from the contract.
 */
import type { Bill } from '../billing/bill-rules.ts'
import type { components } from '../generated/client.ts'
import { itemsOf, partiesOf, recorded } from './event-body.ts'
import type { RecordedEvent } from './event-types.ts'

type Schemas = components['schemas']

export function billCreated(eventId: string, bill: Bill): RecordedEvent {
  return ofBill('bill.created', eventId, bill.createdAt, bill)
}

export function billDeleted(eventId: string, at: Date, bill: Bill): RecordedEvent {
  return ofBill('bill.deleted', eventId, at, bill)
}

/** All of its reports are signed off. */
export function billCompleted(eventId: string, at: Date, bill: Bill): RecordedEvent {
  return ofBill('bill.completed', eventId, at, bill)
}

function ofBill(
  type: 'bill.created' | 'bill.deleted' | 'bill.completed',
  eventId: string,
  at: Date,
  bill: Bill,
): RecordedEvent {
  return recorded(type, eventId, at, bill, (cutter): Omit<Schemas['BillData'], 'truncated'> => ({
    bill: {
      billId: bill.id,
      version: bill.version,
      integratorID: bill.integratorId === null ? null : cutter.copiedId(bill.integratorId),
      leadId: bill.entryId,
      preBookingID: bill.preBookingId,
      status: bill.status,
      patientName: cutter.name(bill.patientName),
      ...partiesOf(bill),
      ...itemsOf(bill.items, cutter),
      discountAmount: bill.discountAmount,
      totalAmount: bill.totalAmount,
      createdAt: bill.createdAt.toISOString(),
      completedAt: bill.completedAt?.toISOString() ?? null,
      deletedAt: bill.deletedAt?.toISOString() ?? null,
    },
  }))
}
