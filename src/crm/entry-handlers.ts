import { COMMIT } from '../../db/batch.ts'
import { withinBudget } from '../../db/connection.ts'
import type { Idempotency } from '../idempotency/idempotency.ts'
import { newId } from '../ids.ts'
import type { HandlerDeps, LateAccountHandler } from '../handlers.ts'
import { LateCaller } from './crm-admission.ts'
import { createEntriesTogether } from './entries-together.ts'
import { createEntryIn, type EntryWish } from './entry-creation.ts'
import { isBooking, requireSoundEntry, type Entry } from './entry-rules.ts'

interface EntryHandlers {
  createEntry: LateAccountHandler<'createEntry'>
}

export function entryHandlers({ database, clock, hint }: HandlerDeps): EntryHandlers {
  const committing = (eventId: string) => hint('committing', eventId)
  const createTogether = createEntriesTogether({ batch: database.batch, clock, committing })

  /** The key is a round trip more, ahead of the two of the entry, and may keep its request waiting. */
  function createKeyed(
    wish: Omit<EntryWish, 'scheduledAt' | 'now'> & { eventId: string },
    idempotency: Idempotency,
  ): Promise<Entry> {
    const scheduledAt = requireSoundEntry(wish.body, wish.account)
    return withinBudget(() =>
      database.batch.transaction(async (send) => {
        await idempotency.claim(send)
        const onSent = () => committing(wish.eventId)
        const endOf = (entry: Entry) => [...idempotency.record(answerOf(entry)), COMMIT]
        return createEntryIn(send, { ...wish, onSent, scheduledAt, now: clock.now() }, endOf)
      }),
    )
  }

  return {
    async createEntry({ caller, body, idempotency }) {
      const eventId = newId(clock.nowMs())
      const made =
        caller instanceof LateCaller
          ? await createTogether({ caller, body, eventId })
          : await createKeyed({ account: caller, body, eventId }, idempotency)
      hint('events', eventId)
      return answerOf(made)
    },
  }
}

function answerOf(entry: Entry) {
  return { status: 200 as const, body: toEntryResponse(entry) }
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
