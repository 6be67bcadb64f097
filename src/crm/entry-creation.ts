/**
 * Making a lead or a booking, for an integrator or for staff: what its ids are, then everything that is written with it.
 */
import type { Send, Statement } from '../../db/batch.ts'
import type { Account } from '../accounts/accounts-repository.ts'
import { conflict } from '../errors.ts'
import { bookingCreated, leadCreated } from '../events/entry-payloads.ts'
import { newId } from '../ids.ts'
import { findEntryReferences, insertEntry } from './entries-repository.ts'
import {
  dayGuardsOf,
  isAssignedAutomatically,
  isBooking,
  makeEntry,
  notificationKindOf,
  requireKnownReferences,
  type Entry,
  type EntryRequest,
} from './entry-rules.ts'
import type { StaffNotification } from './notifications-repository.ts'

/**
 * Two round trips.
 * @param wish a request that is sound by itself (`requireSoundEntry`)
 * @param endOf the statements that end the transaction; known only when the entry is
 * @throws 403 and 400 for what the account or the lab does not have, 409 for the day's second one
 */
export async function createEntryIn(
  send: Send,
  wish: { account: Account; body: EntryRequest; scheduledAt: Date | null; now: Date },
  endOf: (made: Entry) => Statement[],
): Promise<Entry> {
  const { account, body, scheduledAt, now } = wish
  const known = await findEntryReferences(send, account.id, body)
  requireKnownReferences(body, known)
  const made = makeEntry(body, known, { id: newId(now.getTime()), accountId: account.id, scheduledAt, now })
  const eventId = newId(now.getTime())
  const leadId = await insertEntry(send, made, {
    event: isBooking(made) ? bookingCreated(eventId, made) : leadCreated(eventId, made),
    guards: dayGuardsOf(made, account.timeZone),
    notification: notificationOf(made, newId(now.getTime())),
    turnOf: isAssignedAutomatically(body) ? made.assignedTo : null,
    end: endOf(made),
  })
  if (leadId !== undefined) throw duplicateEntry(leadId)
  return made
}

function notificationOf(entry: Entry, id: string): StaffNotification {
  const { accountId, labId, createdAt } = entry
  return { id, accountId, labId, kind: notificationKindOf(entry), entryId: entry.id, createdAt }
}

function duplicateEntry(leadId: string) {
  const details = 'a lead or booking with the same contact or email was already ingested today'
  return conflict(details, 'duplicate_entry', { leadId })
}
