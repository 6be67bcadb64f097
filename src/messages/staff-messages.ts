/**
 * Sending a patient a message: what it is about is looked up under its lock, and the message is recorded in the caller's
 * transaction. Who sends it, a webhook or the lab itself, is decided later.
 */
import type { Account } from '../accounts/accounts-repository.ts'
import { claimBill, type BillingCall } from '../billing/bill-actions.ts'
import { isBillable, isQuotable, nearestAmount, quotedEntry, type Bill } from '../billing/bill-rules.ts'
import { findBill, findCataloguePrices, findLiveBillOfEntry } from '../billing/bills-repository.ts'
import { findLab } from '../catalogue/labs-repository.ts'
import { claimEntry } from '../crm/booking-actions.ts'
import type { Booking, Entry } from '../crm/entry-rules.ts'
import { updateEntry, updateEntryItem } from '../crm/staff-entries-repository.ts'
import type { MessageEvent, MessageSubject, NewMessage } from '../events/message-payloads.ts'
import { newId } from '../ids.ts'
import { findPatient } from '../patients/patients-repository.ts'
import { fullName } from '../patients/person-name.ts'
import { claimReport } from '../reports/report-actions.ts'
import type { PublishedLinks } from '../signed-link.ts'
import { invalidState } from '../state-rules.ts'
import { recordMessage } from './message-recording.ts'
import { formatAmount, formatSlot, renderMessage } from './message-templates.ts'

/** In whose transaction, for whom, when. */
export interface MessageCall extends BillingCall {
  account: Account
}

type Unsent = Omit<NewMessage, 'recipient' | 'subject'>

/** @throws 404; 409 for a report that is not signed off, or a patient without a contact */
export async function sendReport(call: MessageCall, reportId: string, links: PublishedLinks): Promise<MessageEvent> {
  const { report, bill } = await claimReport(call, reportId, 'sendReport')
  const recipient = await recipientOf(call, bill)
  const variables = { patient_name: recipient.name, lab_name: await labNameOf(call, bill.labId) }
  const subject: MessageSubject = { ...bill, kind: 'report', id: report.id, version: report.version }
  return record(call, subject, recipient, {
    type: 'report.send',
    related: relatedTo(bill),
    ...renderMessage('report.send', variables),
    attachmentUrl: links.report(report.id, call.now),
  })
}

/** @throws 404; 409 for a bill that is deleted, or a patient without a contact */
export async function sendBill(call: MessageCall, billId: string, links: PublishedLinks): Promise<MessageEvent> {
  const { bill } = await claimBill(call, billId, 'sendBill')
  const recipient = await recipientOf(call, bill)
  const variables = {
    patient_name: recipient.name,
    lab_name: await labNameOf(call, bill.labId),
    amount: formatAmount(bill.totalAmount ?? 0),
  }
  return record(call, { ...bill, kind: 'bill' }, recipient, {
    type: 'bill.send',
    related: bill.entryId === null ? {} : { leadId: bill.entryId },
    ...renderMessage('bill.send', variables),
    attachmentUrl: links.bill(call.accountId, bill.id, call.now),
  })
}

/** The confirmation of a booking. @throws 404; 409 also for an entry without a contact */
export async function sendBooking(call: MessageCall, leadId: string): Promise<MessageEvent> {
  const { entry } = await claimEntry({ ...call, leadId }, 'sendBooking')
  const { bookingType, scheduledAt } = entry as Booking
  const variables = {
    patient_name: nameOf(entry),
    visit: bookingType === 'Home Collection' ? 'home collection' : 'visit to the lab',
    slot: formatSlot(scheduledAt, call.account.timeZone),
  }
  return recordOfEntry(call, entry, {
    type: 'booking.send',
    ...renderMessage('booking.send', variables),
    attachmentUrl: null,
  })
}

/** Who will take the sample. @throws 404; 409 also for an entry without a contact */
export async function sendPhlebotomist(call: MessageCall, leadId: string): Promise<MessageEvent> {
  const { entry } = await claimEntry({ ...call, leadId }, 'sendPhlebotomist')
  const { phlebotomist, scheduledAt } = entry as Booking
  const variables = {
    patient_name: nameOf(entry),
    phlebotomist_name: phlebotomist!.name,
    slot: formatSlot(scheduledAt, call.account.timeZone),
  }
  return recordOfEntry(call, entry, {
    type: 'phlebotomist.send',
    ...renderMessage('phlebotomist.send', variables),
    attachmentUrl: null,
  })
}

/**
 * What the entry's items cost, each at what it was billed at where it was. From then on they cost that, whatever the catalogue says later:
 * it is what the link shows and what is billed.
 * @throws 404; 409 also for an entry without a contact, without anything to pay, or with a discount of more than that
 */
export async function sendQuotation(call: MessageCall, leadId: string, links: PublishedLinks): Promise<MessageEvent> {
  const { trx, accountId } = call
  const { entry } = await claimEntry({ ...call, leadId }, 'sendQuotation')
  const known = await findCataloguePrices(trx, accountId, entry)
  const billed = await findLiveBillOfEntry(trx, accountId, entry.id)
  const quoted = quotedEntry(entry, billed && (await findBill(trx, accountId, billed.id)), known)
  if (!isQuotable(quoted, known)) throw invalidState('the entry has neither a total nor an item with a price to quote')
  if (!isBillable(quoted, known)) {
    throw invalidState(
      'the items cost less than the discount of the entry, or more than 9999999999.99: bill it with a total',
    )
  }
  await keepPrices(call, entry, quoted)
  const variables = {
    patient_name: nameOf(quoted),
    lab_name: await labNameOf(call, entry.labId),
    amount: formatAmount(nearestAmount(quoted, known)),
  }
  const attachmentUrl = links.quotation(accountId, entry.id, call.now)
  return recordOfEntry(call, quoted, {
    type: 'quotation.send',
    ...renderMessage('quotation.send', variables),
    attachmentUrl,
  })
}

async function keepPrices({ trx, now }: MessageCall, entry: Entry, quoted: Entry): Promise<void> {
  if (quoted === entry) return
  for (const [position, item] of quoted.items.entries()) {
    if (item !== entry.items[position]) await updateEntryItem(trx, entry.id, position, item)
  }
  await updateEntry(trx, quoted, now)
}

async function recordOfEntry(call: MessageCall, entry: Entry, message: Unsent): Promise<MessageEvent> {
  const recipient = { contact: entry.contact, name: nameOf(entry) }
  return record(call, { ...entry, kind: 'entry' }, recipient, message)
}

async function record(
  { trx, now }: MessageCall,
  subject: MessageSubject,
  { contact, name }: { contact: string | null; name: string },
  message: Unsent,
): Promise<MessageEvent> {
  if (contact === null) throw invalidState('the patient has no contact: there is nobody to send a message to')
  return recordMessage(trx, newId(now.getTime()), { ...message, subject, recipient: { contact, name } }, now)
}

function relatedTo(bill: Bill): NewMessage['related'] {
  return { billId: bill.id, ...(bill.entryId === null ? {} : { leadId: bill.entryId }) }
}

/** The patient as they are now: a contact that was corrected since the bill was made is theirs. */
async function recipientOf({ trx, accountId }: MessageCall, { patientId, contact, patientName }: Bill) {
  const patient = patientId === null ? undefined : await findPatient(trx, accountId, patientId)
  return { contact: patient?.contact ?? contact, name: patient?.name ?? patientName }
}

function nameOf({ firstName, lastName }: Entry): string {
  return fullName(firstName, lastName)
}

async function labNameOf({ trx, accountId }: MessageCall, labId: string): Promise<string> {
  return (await findLab(trx, accountId, labId))!.name
}
