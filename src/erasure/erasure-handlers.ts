/**
 * How the operator erases a patient.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Knex } from 'knex'
import { sendThrough } from '../../db/batch.ts'
import { findAccountFor } from '../auth/staff-access.ts'
import { findBill } from '../billing/bills-repository.ts'
import { findPreBooking } from '../billing/staff-pre-bookings-repository.ts'
import { monotonicMs } from '../clock.ts'
import { findEntry } from '../crm/staff-entries-repository.ts'
import { notFound, unknownId } from '../errors.ts'
import { isIdShaped, newId } from '../ids.ts'
import { inKeyedTransaction } from '../idempotency/idempotency.ts'
import type { HandlerDeps, OperatorHandler } from '../handlers.ts'
import { findPatient } from '../patients/patients-repository.ts'
import { comparableName } from '../patients/person-name.ts'
import { NO_COUNTS, PHASES, subjectOf, toErasureRow, type Erasure, type ErasureSubject } from './erasure-rules.ts'
import { isLater, runErasure } from './erasure-runner.ts'
import { findErasure, insertErasure, listErasedRecords } from './erasures-repository.ts'

interface ErasureHandlers {
  startErasure: OperatorHandler<'startErasure'>
  getErasure: OperatorHandler<'getErasure'>
}

/** What the call waits for: one patient's data is mostly done by then. */
const ANSWER_WITHIN_MS = 1500
const LOOK_AGAIN_MS = 20
/** A step that was begun in time may take as long as the request may, and the answer has to be kept. */
const UNFINISHED_MS = 5000

export function erasureHandlers(deps: HandlerDeps): ErasureHandlers {
  const { database, clock, keys, retention } = deps
  const { knex } = database
  return {
    async startErasure({ path, body, operator, audit, idempotency }) {
      const account = await findAccountFor(knex, operator, 'admin', path.accountId)
      const subject = await findSubject(deps, account.id, subjectOf(body))
      const now = clock.now()
      const erasure: Erasure = {
        id: newId(clock.nowMs()),
        accountId: account.id,
        state: 'running',
        phase: PHASES[0],
        labId: null,
        position: null,
        subject,
        isGivenUp: false,
        counts: NO_COUNTS,
        createdAt: now,
        updatedAt: now,
        finishedAt: null,
      }
      const order = async (trx: Knex.Transaction) => {
        await insertErasure(trx, keys, erasure)
        await audit.record(trx, account.id, {
          erasureId: erasure.id,
          ...(subject.patientId === null ? {} : { patientId: subject.patientId }),
        })
        return { status: 201 as const, body: toErasureRow(erasure, retention) }
      }
      const unfinished = { unfinishedForMs: UNFINISHED_MS }
      const ordered = await inKeyedTransaction(database, idempotency, order, unfinished)
      try {
        const answer = { ...ordered, body: toErasureRow(await carryOut(deps, erasure), retention) }
        const kept = idempotency.record(answer)
        if (kept.length > 0) await database.transaction((trx) => sendThrough(trx)(kept))
        return answer
      } catch (error) {
        // The order is committed: how far it has come is told by the next look.
        if (!isLater(error)) throw error
        return ordered
      }
    },

    async getErasure({ path, operator }) {
      const account = await findAccountFor(knex, operator, 'admin', path.accountId)
      const erasure = await findErasure(knex, keys, account.id, path.erasureId)
      if (!erasure) throw notFound('erasure not found')
      return { status: 200, body: toErasureRow(erasure, retention) }
    },
  }
}

/** As far as it comes within the answer's time. Where another process is at it, that one is waited for. */
async function carryOut(deps: HandlerDeps, erasure: Erasure): Promise<Erasure> {
  const { database, keys } = deps
  const untilMs = monotonicMs() + ANSWER_WITHIN_MS
  for (;;) {
    const isOver = await runErasure(deps, erasure.id, untilMs)
    const current = (await findErasure(database.knex, keys, erasure.accountId, erasure.id)) ?? erasure
    if (!isOver || current.state !== 'running' || monotonicMs() >= untilMs) return current
    await sleep(LOOK_AGAIN_MS)
  }
}

/**
 * With everything that the ids say. What an earlier erasure has taken is known: ordered again it erases nothing.
 * @throws 400 for an id that the account does not have
 */
async function findSubject(
  { database: { knex } }: HandlerDeps,
  accountId: string,
  subject: ErasureSubject,
): Promise<ErasureSubject> {
  const { patientId } = subject
  for (const [index, id] of subject.leadIds.entries()) {
    if (!(await findEntry(knex, accountId, id))) throw unknownId('lead', id, `leadIds.${index}`)
  }
  for (const [index, id] of subject.preBookingIds.entries()) {
    if (!(await findPreBooking(knex, accountId, id)))
      throw unknownId('pre_booking', id, `preBookingIds.${index}`, 'pre-booking')
  }
  for (const [index, id] of subject.billIds.entries()) {
    if (!(await findBill(knex, accountId, id))) throw unknownId('bill', id, `billIds.${index}`)
  }
  if (patientId === null) return subject
  const patient = await findPatient(knex, accountId, patientId)
  if (patient) {
    // Their own name narrows their own contact, and nothing that was sent; nor does a name that was sent narrow what was not.
    if (subject.contact === null) return { ...subject, contact: patient.contact, name: comparableName(patient.name) }
    return subject
  }
  const isErased = isIdShaped(patientId) && (await listErasedRecords(knex, accountId, [patientId])).has(patientId)
  if (!isErased) throw unknownId('patient', patientId, 'patientId')
  return subject
}
