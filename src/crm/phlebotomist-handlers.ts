import { findAccountFor } from '../auth/staff-access.ts'
import { notFound } from '../errors.ts'
import { newId } from '../ids.ts'
import { inKeyedTransaction } from '../idempotency/idempotency.ts'
import type { HandlerDeps, OperatorHandler } from '../handlers.ts'
import { cutPage, pageById } from '../paging.ts'
import {
  deactivatePhlebotomist,
  insertPhlebotomist,
  listPhlebotomists,
  type PhlebotomistRow,
} from './phlebotomists-repository.ts'

interface PhlebotomistHandlers {
  createPhlebotomist: OperatorHandler<'createPhlebotomist'>
  listPhlebotomists: OperatorHandler<'listPhlebotomists'>
  deactivatePhlebotomist: OperatorHandler<'deactivatePhlebotomist'>
}

export function phlebotomistHandlers({ database, clock }: HandlerDeps): PhlebotomistHandlers {
  const { knex } = database
  return {
    async createPhlebotomist({ path, body, operator, audit, idempotency }) {
      const account = await findAccountFor(knex, operator, 'admin', path.accountId)
      const now = clock.now()
      const made = { id: newId(now.getTime()), accountId: account.id, name: body.name, active: true, createdAt: now }
      return inKeyedTransaction(database, idempotency, async (trx) => {
        await insertPhlebotomist(trx, made)
        await audit.record(trx, account.id, { phlebotomistId: made.id })
        return { status: 201, body: toPhlebotomist(made) }
      })
    },

    async listPhlebotomists({ path, query, operator }) {
      const { limit, afterId } = pageById(query)
      const account = await findAccountFor(knex, operator, 'staff', path.accountId)
      const rows = await listPhlebotomists(knex, account.id, afterId, limit + 1)
      const { shown, nextCursor } = cutPage(rows, limit, ({ id }) => [id])
      return { status: 200, body: { phlebotomists: shown.map(toPhlebotomist), nextCursor } }
    },

    async deactivatePhlebotomist({ path, operator, audit }) {
      const account = await findAccountFor(knex, operator, 'admin', path.accountId)
      const row = await database.transaction(async (trx) => {
        const found = await deactivatePhlebotomist(trx, account.id, path.phlebotomistId)
        if (!found) throw notFound('phlebotomist not found')
        if (found.changed) await audit.record(trx, account.id, { phlebotomistId: found.phlebotomist.id })
        return found.phlebotomist
      })
      return { status: 200, body: toPhlebotomist(row) }
    },
  }
}

function toPhlebotomist({ id, accountId, name, active, createdAt }: PhlebotomistRow) {
  return { phlebotomistId: id, accountId, name, active, createdAt: createdAt.toISOString() }
}
