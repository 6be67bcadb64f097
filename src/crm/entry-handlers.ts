import { withinBudget } from '../../db/connection.ts'
import { conflict } from '../errors.ts'
import { bookingCreated, leadCreated } from '../events/event-types.ts'
import { newId } from '../ids.ts'
import type { AccountHandler, HandlerDeps } from '../operations.ts'
import { findEntryReferences, insertEntry } from './entries-repository.ts'
import {
  dayGuardsOf,
  isAssignedAutomatically,
  isBooking,
  makeEntry,
  notificationKindOf,
  requireKnownReferences,
  requireSoundEntry,
  type Entry,
} from './entry-rules.ts'
import type { StaffNotification } from './notifications-repository.ts'

interface EntryHandlers {
  createEntry: AccountHandler<'createEntry'>
}

export function entryHandlers({ database, clock, hint }: HandlerDeps): EntryHandlers {
  return {
    async createEntry({ account, body, idempotency }) {
      const scheduledAt = requireSoundEntry(body, account)
      // Two round trips: what the ids are, then everything that is written, with its commit. A key is one more, ahead of them.
      const answer = await withinBudget(() =>
        database.batch.transaction(async (send) => {
          await idempotency.claim(send)
          const known = await findEntryReferences(send, account.id, body)
          requireKnownReferences(body, known)
          const now = clock.now()
          const id = newId(now.getTime())
          const made = makeEntry(body, known, { id, accountId: account.id, scheduledAt, now })
          const eventId = newId(now.getTime())
          const event = isBooking(made) ? bookingCreated(eventId, made) : leadCreated(eventId, made)
          const created = { status: 200 as const, body: toEntryResponse(made) }
          const leadId = await insertEntry(send, made, {
            event,
            guards: dayGuardsOf(made, account.timeZone),
            notification: notificationOf(made, newId(now.getTime())),
            turnOf: isAssignedAutomatically(body) ? made.assignedTo : null,
            answer: idempotency.record(created),
          })
          if (leadId !== undefined) throw duplicateEntry(leadId)
          return created
        }),
      )
      hint()
      return answer
    },
  }
}

function notificationOf(entry: Entry, id: string): StaffNotification {
  const { accountId, labId, createdAt } = entry
  return { id, accountId, labId, kind: notificationKindOf(entry), entryId: entry.id, createdAt }
}

function duplicateEntry(leadId: string) {
  const details = 'a lead or booking with the same contact or email was already ingested today'
  return conflict(details, 'duplicate_entry', { leadId })
}

function toEntryResponse(entry: Entry) {
  if (!isBooking(entry)) {
    return { success: true as const, leadId: entry.id, phase: 'lead' as const, message: 'Lead created' }
  }
  return {
    success: true as const,
    leadId: entry.id,
    phase: entry.phase,
    message: 'Booking created',
    bookingStatus: entry.bookingStatus,
    paymentStatus: entry.paymentStatus,
    convertedAt: entry.convertedAt.toISOString(),
  }
}
