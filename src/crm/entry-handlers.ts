import { COMMIT } from '../../db/batch.ts'
import { withinBudget } from '../../db/connection.ts'
import type { AccountHandler, HandlerDeps } from '../operations.ts'
import { createEntriesTogether } from './entries-together.ts'
import { createEntryIn } from './entry-creation.ts'
import { isBooking, requireSoundEntry, type Entry } from './entry-rules.ts'

interface EntryHandlers {
  createEntry: AccountHandler<'createEntry'>
}

export function entryHandlers({ database, clock, hint }: HandlerDeps): EntryHandlers {
  const createTogether = createEntriesTogether(database.batch)
  return {
    async createEntry({ account, body, idempotency }) {
      const scheduledAt = requireSoundEntry(body, account)
      // Two round trips with the commit in the second. A key is one more, ahead of them, and may keep its request waiting.
      const made = await withinBudget(() =>
        idempotency.isKeyed
          ? database.batch.transaction(async (send) => {
              await idempotency.claim(send)
              const wish = { account, body, scheduledAt, now: clock.now() }
              return createEntryIn(send, wish, (entry) => [...idempotency.record(answerOf(entry)), COMMIT])
            })
          : createTogether({ account, body, scheduledAt, now: clock.now() }),
      )
      hint()
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
