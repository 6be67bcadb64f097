/**
 * Locks of one-time passwords, as staff see and lift them for a patient who calls.
 */
import { findAccountFor } from '../auth/staff-access.ts'
import type { HandlerDeps, OperatorHandler } from '../handlers.ts'
import { findOtpContact, lockOtpContact, updateOtpContact } from './otp-repository.ts'
import { contactHash, lockMovedBack, type OtpContact } from './otp-rules.ts'
import { findPatientIdOfContact } from './patient-matching.ts'

interface OtpLockHandlers {
  getOtpLock: OperatorHandler<'getOtpLock'>
  liftOtpLock: OperatorHandler<'liftOtpLock'>
}

export function otpLockHandlers({ database, clock, keys }: HandlerDeps): OtpLockHandlers {
  const { knex } = database
  return {
    async getOtpLock({ path, query, operator }) {
      const account = await findAccountFor(knex, operator, 'staff', path.accountId)
      const contact = await findOtpContact(knex, account.id, contactHash(keys, account.id, query.contact))
      return { status: 200, body: toOtpLock(contact, clock.now()) }
    },

    /** Sets the count of failures back, too: with it the next wrong try would lock the contact again. */
    async liftOtpLock({ path, body, operator, audit }) {
      const account = await findAccountFor(knex, operator, 'staff', path.accountId)
      const hash = contactHash(keys, account.id, body.contact)
      await database.transaction(async (trx) => {
        const contact = await lockOtpContact(trx, account.id, hash)
        if (contact) await updateOtpContact(trx, account.id, hash, { failuresInRow: 0, lockedUntil: null })
        // The contact is a patient's datum; the id of a patient who has it is none.
        const patientId = await findPatientIdOfContact(trx, account.id, body.contact)
        await audit.record(trx, account.id, { accountId: account.id, ...(patientId ? { patientId } : {}) })
      })
      return { status: 200, body: toOtpLock(undefined, clock.now()) }
    },
  }
}

/** A contact that never asked for a code is like one without failures. */
function toOtpLock(contact: OtpContact | undefined, now: Date) {
  const until = contact && (lockMovedBack(contact, now) ?? contact.lockedUntil)
  const lockedUntil = until && until > now ? until : null
  return {
    locked: lockedUntil !== null,
    lockedUntil: lockedUntil?.toISOString() ?? null,
    failuresInRow: contact?.failuresInRow ?? 0,
  }
}
