/**
 * How the lab keeps the patients of an account.
 */
import { findAccount } from '../accounts/accounts-repository.ts'
import { requireAccountOf, requireRole } from '../auth/operator-rules.ts'
import { notFound } from '../errors.ts'
import { newId } from '../ids.ts'
import { inKeyedTransaction } from '../idempotency/idempotency.ts'
import type { HandlerDeps, OperatorHandler } from '../handlers.ts'
import { cutPage, pageById } from '../paging.ts'
import { findPatient, insertPatient, listPatients, updatePatient, type Patient } from './patients-repository.ts'

interface PatientKeepingHandlers {
  createPatient: OperatorHandler<'createPatient'>
  listPatients: OperatorHandler<'listPatients'>
  getPatient: OperatorHandler<'getPatient'>
  updatePatient: OperatorHandler<'updatePatient'>
}

export function patientKeepingHandlers({ database, clock }: HandlerDeps): PatientKeepingHandlers {
  const { knex } = database
  return {
    async createPatient({ path, body, operator, audit, idempotency }) {
      requireRole(operator, 'staff')
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const patient: Patient = {
        id: newId(clock.nowMs()),
        accountId: account.id,
        contact: body.contact,
        name: body.name,
        createdAt: clock.now(),
      }
      return inKeyedTransaction(
        database,
        idempotency,
        async (trx) => {
          await insertPatient(trx, patient)
          await audit.record(trx, account.id, { patientId: patient.id })
          return { status: 201, body: toPatientRow(patient) }
        },
        { personRecordIdOf: ({ patientId }) => patientId },
      )
    },

    async listPatients({ path, query, operator }) {
      requireRole(operator, 'staff')
      const { limit, afterId } = pageById(query)
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const rows = await listPatients(knex, account.id, query.contact, afterId, limit + 1)
      const { shown, nextCursor } = cutPage(rows, limit, ({ id }) => [id])
      return { status: 200, body: { patients: shown.map(toPatientRow), nextCursor } }
    },

    async getPatient({ path, operator }) {
      requireRole(operator, 'staff')
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const patient = await findPatient(knex, account.id, path.patientId)
      if (!patient) throw notFound('patient not found')
      return { status: 200, body: toPatientRow(patient) }
    },

    async updatePatient({ path, body, operator, audit }) {
      requireRole(operator, 'staff')
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const patient = await findPatient(knex, account.id, path.patientId)
      if (!patient) throw notFound('patient not found')
      const updated = await database.transaction(async (trx) => {
        const outcome = await updatePatient(trx, patient, body)
        if (!outcome) throw notFound('patient not found')
        await audit.record(trx, account.id, { patientId: patient.id })
        return outcome
      })
      return { status: 200, body: toPatientRow(updated) }
    },
  }
}

function toPatientRow({ id, createdAt, ...rest }: Patient) {
  return { patientId: id, ...rest, createdAt: createdAt.toISOString() }
}
