/**
 * Making a lead or a booking, for an integrator or for staff: what its ids are, then everything that is written with it.
 */
import type { Send, Statement } from '../../db/batch.ts'
import type { Account } from '../accounts/accounts-repository.ts'
import { conflict } from '../errors.ts'
import { bookingCreated, leadCreated } from '../events/entry-payloads.ts'
import { newId } from '../ids.ts'
import { currentTraceParent } from '../trace-context.ts'
import { insertEntry, type NewEntry } from './entries-repository.ts'
import { findEntryReferences } from './entry-references-repository.ts'
import {
  dayGuardsOf,
  isAssignedAutomatically,
  isBooking,
  makeEntry,
  notificationKindOf,
  requireKnownReferences,
  requireReferencesOfStaff,
  type Entry,
  type EntryReferences,
  type EntryRequest,
} from './entry-rules.ts'
import type { StaffNotification } from './notifications-repository.ts'

/** A request that is sound by itself (`requireSoundEntry`). */
export interface EntryWish {
  account: Account
  body: EntryRequest
  scheduledAt: Date | null
  now: Date
  /** Of the event that tells of it, where somebody is to be told; undefined: any. */
  eventId?: string
  /** Told when the rest of its transaction, with that event, is on its way to the database. It must not throw. */
  onSent?: () => void
  /** Made by staff, for a lab that the account has; otherwise by an integrator. */
  isOfStaff?: true
}

/**
 * Two round trips.
 * @param endOf the statements that end the transaction; known only when the entry is
 * @throws 403 and 400 for what the account or the lab does not have, 409 for the day's second one and, to staff, for an inactive lab
 */
export async function createEntryIn(send: Send, wish: EntryWish, endOf: (made: Entry) => Statement[]): Promise<Entry> {
  const known = await findEntryReferences(send, { accountId: wish.account.id, body: wish.body })
  const made = newEntryOf(wish, known, currentTraceParent())
  const leadId = await insertEntry(send, made, endOf(made.entry), wish.onSent)
  if (leadId !== undefined) throw duplicateEntry(leadId)
  return made.entry
}

/** @throws 403 and 400 for what the account or the lab does not have; to staff 409 for an inactive lab */
export function newEntryOf(wish: EntryWish, known: EntryReferences, traceParent: string | null): NewEntry {
  const { account, body, scheduledAt, now } = wish
  if (wish.isOfStaff) requireReferencesOfStaff(body, known)
  else requireKnownReferences(body, known)
  const entry = makeEntry(body, known, { id: newId(now.getTime()), accountId: account.id, scheduledAt, now })
  const eventId = wish.eventId ?? newId(now.getTime())
  return {
    entry,
    event: isBooking(entry) ? bookingCreated(eventId, entry) : leadCreated(eventId, entry),
    traceParent,
    guards: dayGuardsOf(entry, account.timeZone),
    notification: notificationOf(entry, newId(now.getTime())),
    turnOf: isAssignedAutomatically(body) ? entry.assignedTo : null,
  }
}

function notificationOf(entry: Entry, id: string): StaffNotification {
  const { accountId, labId, createdAt } = entry
  return { id, accountId, labId, kind: notificationKindOf(entry), entryId: entry.id, createdAt }
}

export function duplicateEntry(leadId: string) {
  const details = 'a lead or booking with the same contact or email was already ingested today'
  return conflict(details, 'duplicate_entry', { leadId })
}
