/**
 * What staff do with an entry: under its lock, by its table, with its event, in the caller's transaction.
 */
import type { Knex } from 'knex'
import { notFound, unknownId } from '../errors.ts'
import {
  bookingCancelled,
  bookingCreated,
  bookingRescheduled,
  phlebotomistArrived,
  phlebotomistAssigned,
  sampleCollected,
  sampleSubmitted,
} from '../events/entry-payloads.ts'
import { recordEvent } from '../events/events-repository.ts'
import { newId } from '../ids.ts'
import { invalidState } from '../state-rules.ts'
import { findLiveBillOfEntry } from '../billing/bills-repository.ts'
import {
  changedBooking,
  convertedFrom,
  nextEntryState,
  type Conversion,
  type EntryAction,
  type EntryState,
} from './booking-rules.ts'
import type { Booking, Entry } from './entry-rules.ts'
import { claimActivePhlebotomist } from './phlebotomists-repository.ts'
import { lockEntry, updateEntry } from './staff-entries-repository.ts'

/** Which entry, in whose transaction, when. */
export interface EntryCall {
  trx: Knex.Transaction
  accountId: string
  leadId: string
  now: Date
}

/**
 * Locks the entry for an action.
 * @throws 404 for an unknown one, 409 where its state does not allow the action
 */
export async function claimEntry(
  { trx, accountId, leadId }: EntryCall,
  action: EntryAction,
): Promise<{ entry: Entry; next: EntryState }> {
  const entry = await lockEntry(trx, accountId, leadId)
  if (!entry) throw notFound('entry not found')
  return { entry, next: nextEntryState(action, entry) }
}

/** The same for an action that only a booking allows. */
async function claimBooking(call: EntryCall, action: EntryAction) {
  const { entry, next } = await claimEntry(call, action)
  return { booking: entry as Booking, next }
}

/** @throws 400 when neither the request nor the lead says where or when; 404, 409 */
export async function convertLead(call: EntryCall, conversion: Conversion): Promise<Booking> {
  const { entry } = await claimEntry(call, 'convert')
  const booking = convertedFrom(entry, conversion, call.now)
  await updateEntry(call.trx, booking, call.now)
  await recordEvent(call.trx, bookingCreated(newId(call.now.getTime()), booking))
  return booking
}

/** Assigns, or gives the booking to another one. @throws 400 for one who is unknown or not active; 404, 409 */
export async function assignPhlebotomist(call: EntryCall, phlebotomistId: string): Promise<Booking> {
  const { trx, accountId, now } = call
  // Before the entry's lock: a deactivation, which locks this row only, never waits in a circle.
  const found = await claimActivePhlebotomist(trx, accountId, phlebotomistId)
  if (!found) throw unknownId('phlebotomist', phlebotomistId, 'phlebotomistId')
  const { booking, next } = await claimBooking(call, 'assignPhlebotomist')
  const previous = booking.phlebotomist
  if (previous?.id === found.id) {
    throw invalidState(`the booking is ${booking.bookingStatus}, and to this phlebotomist: name another one`)
  }
  const changed = changedBooking(booking, next, { phlebotomist: { id: found.id, name: found.name } })
  await updateEntry(trx, changed, now)
  await recordEvent(trx, phlebotomistAssigned(newId(now.getTime()), now, changed, previous))
  return changed
}

const EVENT_OF_STEP = { arrive: phlebotomistArrived, collectSample: sampleCollected, submitSample: sampleSubmitted }

/** A step of the phlebotomist's: each once and in order. @throws 404, 409 */
export async function recordStep(call: EntryCall, step: keyof typeof EVENT_OF_STEP): Promise<Booking> {
  const { trx, now } = call
  const { booking, next } = await claimBooking(call, step)
  const changed = changedBooking(booking, next)
  await updateEntry(trx, changed, now)
  await recordEvent(trx, EVENT_OF_STEP[step](newId(now.getTime()), now, changed))
  return changed
}

/** @throws 404; 409 also for the time that it has already */
export async function rescheduleBooking(call: EntryCall, scheduledAt: Date): Promise<Booking> {
  const { trx, now } = call
  const { booking, next } = await claimBooking(call, 'reschedule')
  const previous = booking.scheduledAt
  if (previous.getTime() === scheduledAt.getTime()) {
    throw invalidState(`the booking is ${booking.bookingStatus}, and scheduled for that time: name another one`)
  }
  const changed = changedBooking(booking, next, { scheduledAt })
  await updateEntry(trx, changed, now)
  await recordEvent(trx, bookingRescheduled(newId(now.getTime()), now, changed, previous))
  return changed
}

/** @throws 404; 409 also for a booking that has a bill */
export async function cancelBooking(call: EntryCall): Promise<Booking> {
  const { trx, accountId, now } = call
  const { booking, next } = await claimBooking(call, 'cancel')
  const bill = await findLiveBillOfEntry(trx, accountId, booking.id)
  if (bill) {
    throw invalidState(`the booking is ${booking.bookingStatus} and has the bill ${bill.id}: delete the bill first`)
  }
  const changed = changedBooking(booking, next)
  await updateEntry(trx, changed, now)
  await recordEvent(trx, bookingCancelled(newId(now.getTime()), now, changed))
  return changed
}
