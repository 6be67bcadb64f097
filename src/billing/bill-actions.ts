/**
 * Making, deleting and completing bills: under the lock of what is billed, with the event, in the caller's transaction.
 */
import type { Knex } from 'knex'
import { claimEntry } from '../crm/booking-actions.ts'
import { notFound } from '../errors.ts'
import { billCompleted, billCreated, billDeleted } from '../events/bill-payloads.ts'
import { recordEvent } from '../events/events-repository.ts'
import { newId } from '../ids.ts'
import { claimPatient } from '../patients/patient-matching.ts'
import { discardDrafts, listStatusesOfReports } from '../reports/bill-reports-repository.ts'
import { invalidState } from '../state-rules.ts'
import {
  isReported,
  makeBill,
  nextBillStatus,
  sourceOfBooking,
  sourceOfPreBooking,
  type Bill,
  type BillAction,
  type BillSource,
  type BillTerms,
} from './bill-rules.ts'
import { findCataloguePrices, findLiveBillOfEntry, insertBill, lockBill, updateBill } from './bills-repository.ts'
import { lockPreBooking, updatePreBookingStatus } from './staff-pre-bookings-repository.ts'

/** In whose transaction, for whom, when. */
export interface BillingCall {
  trx: Knex.Transaction
  accountId: string
  now: Date
}

export interface FileDiscardingCall extends BillingCall {
  /** Files that nobody knows of any more: whoever commits removes them. */
  discardedFiles: string[]
}

/** @throws 404; 409 for a lead, a cancelled booking, and one that is billed already */
export async function billBooking(call: BillingCall, leadId: string, terms: BillTerms): Promise<Bill> {
  const { entry } = await claimEntry({ ...call, leadId }, 'bill')
  const bill = await findLiveBillOfEntry(call.trx, call.accountId, entry.id)
  if (bill) throw invalidState(`the booking is ${entry.bookingStatus} and billed already, by the bill ${bill.id}`)
  return insertNewBill(call, sourceOfBooking(entry), terms)
}

/** @throws 404; 409 for one that is billed already */
export async function billPreBooking(call: BillingCall, preBookingId: string, terms: BillTerms): Promise<Bill> {
  const { trx, accountId, now } = call
  const preBooking = await lockPreBooking(trx, accountId, preBookingId)
  if (!preBooking) throw notFound('pre-booking not found')
  if (preBooking.status !== 'created') {
    throw invalidState('the pre-booking is billed already: delete its bill to bill it again')
  }
  const bill = await insertNewBill(call, sourceOfPreBooking(preBooking), terms)
  await updatePreBookingStatus(trx, accountId, preBookingId, 'billed', now)
  return bill
}

/** What has neither entry nor pre-booking. The caller has looked up every id in it. */
export async function billDirectly(call: BillingCall, source: BillSource, terms: BillTerms): Promise<Bill> {
  return insertNewBill(call, source, terms)
}

async function insertNewBill(call: BillingCall, source: BillSource, terms: BillTerms): Promise<Bill> {
  const { trx, accountId, now } = call
  const known = await findCataloguePrices(trx, accountId, source)
  const made = makeBill(source, terms, known, { id: newId(now.getTime()), accountId, now })
  const { contact, patientName: name } = made
  const patientId = contact === null ? null : await claimPatient(trx, accountId, { contact, name }, now)
  const bill: Bill = { ...made, patientId }
  await insertBill(trx, bill)
  await recordEvent(trx, billCreated(newId(now.getTime()), bill))
  return bill
}

/**
 * Locks the bill for an action.
 * @throws 404, 409
 */
export async function claimBill({ trx, accountId }: BillingCall, billId: string, action: BillAction) {
  const bill = await lockBill(trx, accountId, billId)
  if (!bill) throw notFound('bill not found')
  return { bill, next: nextBillStatus(action, bill) }
}

/**
 * Deletes the bill and its drafts; what it was made of can be billed again.
 * @throws 404; 409 where one of its reports is signed off
 */
export async function deleteBill(call: FileDiscardingCall, billId: string): Promise<Bill> {
  const { trx, accountId, now } = call
  const { bill, next } = await claimBill(call, billId, 'deleteBill')
  const statuses = await listStatusesOfReports(trx, accountId, bill.id)
  if (statuses.some(({ status }) => status === 'signed_off')) {
    throw invalidState(`the bill is ${bill.status} and one of its reports is signed off: it can not be deleted`)
  }
  call.discardedFiles.push(...(await discardDrafts(trx, accountId, bill.id, now)))
  const deleted: Bill = { ...bill, version: bill.version + 1, status: next, deletedAt: now }
  await updateBill(trx, deleted, now)
  if (bill.preBookingId !== null) await updatePreBookingStatus(trx, accountId, bill.preBookingId, 'created', now)
  await recordEvent(trx, billDeleted(newId(now.getTime()), now, deleted))
  return deleted
}

/**
 * Completes the bill when nothing is left to report. Call under the bill's lock, after a report was signed off: of two that sign off the last two reports at once, the second completes it.
 * @returns the bill as it then is
 */
export async function completeWhenReported({ trx, accountId, now }: BillingCall, bill: Bill): Promise<Bill> {
  const statuses = await listStatusesOfReports(trx, accountId, bill.id)
  if (!isReported(bill, statuses)) return bill
  const completed: Bill = { ...bill, version: bill.version + 1, status: 'completed', completedAt: now }
  await updateBill(trx, completed, now)
  await recordEvent(trx, billCompleted(newId(now.getTime()), now, completed))
  return completed
}
