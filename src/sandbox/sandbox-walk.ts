/**
 * A whole life of an entry on a sandbox account, by the functions that staff's operations use, so that an integrator sees
 * every event without a lab.
 */
import type { Knex } from 'knex'
import type { Account } from '../accounts/accounts-repository.ts'
import { billBooking, deleteBill, type BillingCall } from '../billing/bill-actions.ts'
import { isBillable, isQuotable, nearestAmount } from '../billing/bill-rules.ts'
import { findCataloguePrices } from '../billing/bills-repository.ts'
import type { Clock } from '../clock.ts'
import {
  assignPhlebotomist,
  cancelBooking,
  convertLead,
  recordStep,
  rescheduleBooking,
  type EntryCall,
} from '../crm/booking-actions.ts'
import { entryStateOf } from '../crm/booking-rules.ts'
import { insertPhlebotomist, listActivePhlebotomists } from '../crm/phlebotomists-repository.ts'
import { lockEntry } from '../crm/staff-entries-repository.ts'
import type { Booking, Entry } from '../crm/entry-rules.ts'
import { LATEST_MS } from '../crm/zoned-time.ts'
import { unknownId } from '../errors.ts'
import { newId } from '../ids.ts'
import {
  sendBill,
  sendBooking,
  sendPhlebotomist,
  sendQuotation,
  sendReport,
  type MessageCall,
} from '../messages/staff-messages.ts'
import { amendReport, createReport, setReportFile, signOffReport } from '../reports/report-actions.ts'
import type { StoredFile } from '../reports/report-store.ts'
import type { PublishedLinks } from '../signed-link.ts'
import { invalidState } from '../state-rules.ts'

const DAY_MS = 24 * 3600_000
const PHLEBOTOMISTS = ['Sandbox Phlebotomist One', 'Sandbox Phlebotomist Two']

export interface WalkRequest {
  trx: Knex.Transaction
  clock: Clock
  account: Account
  labId: string
  leadId: string
  links: PublishedLinks
}

export interface WalkEnd {
  booking: Booking
  billId: string | null
  reportId: string | null
}

/** @throws 400 for an entry that the lab does not have, 409 for one that is too far */
export function requireWalkable(entry: Entry | undefined, labId: string, leadId: string): Entry {
  if (entry?.labId !== labId) throw unknownId('lead', leadId, 'leadId')
  const state = entryStateOf(entry)
  if (state === 'Lead' || state === 'Scheduled') return entry
  throw invalidState(`the booking is ${state}: a walk begins with a lead or a booking that is Scheduled`)
}

/**
 * As far as both endings have it in common: confirmed, rescheduled, assigned twice.
 * @throws 400 for an entry that the lab does not have, 409 for one that is too far
 */
async function begin(walk: WalkRequest): Promise<Booking> {
  const { trx, clock, account, labId, leadId } = walk
  const entry = requireWalkable(await lockEntry(trx, account.id, leadId), labId, leadId)
  const booking = entry.phase === 'lead' ? await convert(walk, entry) : (entry as Booking)
  if (booking.contact !== null) await sendBooking(callOf(walk), leadId)
  await rescheduleBooking(entryCallOf(walk), anotherDay(booking.scheduledAt))
  const [first, second] = await claimPhlebotomists(trx, account.id, clock.now())
  await assignPhlebotomist(entryCallOf(walk), first!)
  const assigned = await assignPhlebotomist(entryCallOf(walk), second!)
  if (booking.contact !== null) await sendPhlebotomist(callOf(walk), leadId)
  return assigned
}

/** @throws 400, 409 */
export async function walkToCancellation(walk: WalkRequest): Promise<WalkEnd> {
  await begin(walk)
  return { booking: await cancelBooking(entryCallOf(walk)), billId: null, reportId: null }
}

/**
 * @param files the report's file, and that of its amendment
 * @throws 400, 409
 */
export async function walkToCompletion(walk: WalkRequest, files: [StoredFile, StoredFile]): Promise<WalkEnd> {
  const { leadId, links } = walk
  await begin(walk)
  await recordStep(entryCallOf(walk), 'arrive')
  await recordStep(entryCallOf(walk), 'collectSample')
  const booking = await recordStep(entryCallOf(walk), 'submitSample')
  const known = await findCataloguePrices(walk.trx, walk.account.id, booking)
  const terms = { totalAmount: nearestAmount(booking, known) }
  // What is made here had no file before: none is discarded.
  const mistaken = await billBooking(callOf(walk), leadId, terms)
  await deleteBill({ ...callOf(walk), discardedFiles: [] }, mistaken.id)
  const bill = await billBooking(callOf(walk), leadId, terms)
  if (bill.contact !== null) await sendBill(callOf(walk), bill.id, links)
  const report = await createReport(callOf(walk), bill.id, undefined)
  await setReportFile({ ...callOf(walk), discardedFiles: [] }, report.id, files[0])
  await signOffReport(callOf(walk), report.id, links)
  if (bill.contact !== null) await sendReport(callOf(walk), report.id, links)
  await amendReport(callOf(walk), report.id, files[1], links)
  return { booking, billId: bill.id, reportId: report.id }
}

async function convert(walk: WalkRequest, lead: Entry): Promise<Booking> {
  const known = await findCataloguePrices(walk.trx, walk.account.id, lead)
  // A lead takes any discount: one that is more than its items cost is nobody's fault here.
  const canBeQuoted = isQuotable(lead, known) && isBillable(lead, known)
  if (lead.contact !== null && canBeQuoted) await sendQuotation(callOf(walk), lead.id, walk.links)
  return convertLead(entryCallOf(walk), {
    bookingType: lead.bookingType ?? 'Home Collection',
    scheduledAt: lead.scheduledAt ?? new Date(walk.clock.nowMs() + DAY_MS),
    paymentStatus: undefined,
    paymentMethod: undefined,
  })
}

/** The next day, but for the last one that there is. */
function anotherDay(at: Date): Date {
  const next = at.getTime() + DAY_MS
  return new Date(next <= LATEST_MS ? next : at.getTime() - DAY_MS)
}

/** Two active ones; where the account has fewer, they are made. */
async function claimPhlebotomists(trx: Knex.Transaction, accountId: string, now: Date): Promise<string[]> {
  let active = await listActivePhlebotomists(trx, accountId, PHLEBOTOMISTS.length)
  if (active.length < 2) {
    // Of walks at once one makes them.
    await trx('accounts').where({ id: accountId }).forUpdate().first('id')
    active = await listActivePhlebotomists(trx, accountId, PHLEBOTOMISTS.length)
  }
  for (const name of PHLEBOTOMISTS.slice(0, Math.max(0, 2 - active.length))) {
    const id = newId(now.getTime())
    await insertPhlebotomist(trx, { id, accountId, name, active: true, createdAt: now })
    active.push(id)
  }
  return active.slice(0, 2)
}

/** Each step has a time of its own. */
function callOf({ trx, account, clock }: WalkRequest): MessageCall & BillingCall {
  return { trx, account, accountId: account.id, now: clock.now() }
}

function entryCallOf(walk: WalkRequest): EntryCall {
  return { ...callOf(walk), leadId: walk.leadId }
}
