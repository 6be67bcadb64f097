import type { Knex } from 'knex'
import { findLab } from '../catalogue/labs-repository.ts'
import { labForbidden } from '../errors.ts'
import { inKeyedTransaction } from '../idempotency/idempotency.ts'
import { newId } from '../ids.ts'
import type { AccountHandler, HandlerDeps } from '../handlers.ts'
import { barcodeExists, makePreBooking, requireKnownValues, type PreBookingRequest } from './pre-booking-rules.ts'
import { findPreBookingReferences, insertPreBooking } from './pre-bookings-repository.ts'

interface PreBookingHandlers {
  createPreBooking: AccountHandler<'createPreBooking'>
}

export function preBookingHandlers({ database, clock }: HandlerDeps): PreBookingHandlers {
  return {
    async createPreBooking({ account, idempotency, ...call }) {
      const body = call.body as PreBookingRequest
      const work = async (trx: Knex.Transaction) => {
        const lab = await findLab(trx, account.id, body.labID)
        if (!lab?.active) throw labForbidden('labID')
        const known = await findPreBookingReferences(trx, account.id, body)
        requireKnownValues(body, known)
        const now = clock.now()
        const preBooking = makePreBooking(body, known, { id: newId(now.getTime()), accountId: account.id, now })
        if (!(await insertPreBooking(trx, preBooking))) throw barcodeExists(preBooking.barcode!)
        // No event: bill.created follows when it becomes a bill.
        return {
          status: 200 as const,
          body: {
            success: true as const,
            message: 'Pre-booking created',
            integrator_id: preBooking.integratorId,
            preBookingID: preBooking.id,
          },
        }
      }
      return inKeyedTransaction(database, idempotency, work, { personRecordIdOf: ({ preBookingID }) => preBookingID })
    },
  }
}
