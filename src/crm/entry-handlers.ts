import { COMMIT } from '../../db/batch.ts'
import { withinBudget } from '../../db/connection.ts'
import type { Account } from '../accounts/accounts-repository.ts'
import type { Idempotency } from '../idempotency/idempotency.ts'
import type { HandlerDeps, LateAccountHandler } from '../operations.ts'
import { LateCaller } from './crm-admission.ts'
import { createEntriesTogether } from './entries-together.ts'
import { createEntryIn } from './entry-creation.ts'
import { isBooking, requireSoundEntry, type Entry, type EntryRequest } from './entry-rules.ts'

interface EntryHandlers {
  createEntry: LateAccountHandler<'createEntry'>
}

/** @param crmCalls that an account may make in a minute */
export function entryHandlers({ database, clock, hint }: HandlerDeps, crmCalls: number): EntryHandlers {
  const createTogether = createEntriesTogether({ batch: database.batch, clock, crmCalls })

  /** The key is a round trip more, ahead of the two of the entry, and may keep its request waiting. */
  function createKeyed(account: Account, body: EntryRequest, idempotency: Idempotency): Promise<Entry> {
    const scheduledAt = requireSoundEntry(body, account)
    return withinBudget(() =>
      database.batch.transaction(async (send) => {
        await idempotency.claim(send)
        const wish = { account, body, scheduledAt, now: clock.now() }
        return createEntryIn(send, wish, (entry) => [...idempotency.record(answerOf(entry)), COMMIT])
      }),
    )
  }

  return {
    async createEntry({ caller, body, idempotency }) {
      const made =
        caller instanceof LateCaller
          ? await createTogether({ caller, body })
          : await createKeyed(caller, body, idempotency)
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
