/**
 * How the operator keeps the labs of an account.
 */
import { findAccount } from '../accounts/accounts-repository.ts'
import { requireAccountOf, requireLabOf, requireRole } from '../auth/operator-rules.ts'
import { newId } from '../ids.ts'
import { inKeyedTransaction } from '../idempotency/idempotency.ts'
import type { HandlerDeps, OperatorHandler } from '../handlers.ts'
import { cutPage, pageById } from '../paging.ts'
import { toFlag } from './catalogue-filters.ts'
import { findLabOfAnyAccount, insertLab, listLabs, updateLab, type Lab } from './labs-repository.ts'

interface LabKeepingHandlers {
  createLab: OperatorHandler<'createLab'>
  listAccountLabs: OperatorHandler<'listAccountLabs'>
  getLab: OperatorHandler<'getLab'>
  updateLab: OperatorHandler<'updateLab'>
}

export function labKeepingHandlers({ database, clock }: HandlerDeps): LabKeepingHandlers {
  const { knex } = database
  return {
    async createLab({ path, body, operator, audit, idempotency }) {
      requireRole(operator, 'admin')
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const lab: Lab = {
        id: newId(clock.nowMs()),
        accountId: account.id,
        name: body.name,
        contact: body.contact,
        adminEmail: body.adminEmail ?? null,
        active: true,
        createdAt: clock.now(),
      }
      return inKeyedTransaction(database, idempotency, async (trx) => {
        await insertLab(trx, lab)
        await audit.record(trx, account.id, { labID: lab.id })
        return { status: 201, body: toLabRow(lab) }
      })
    },

    async listAccountLabs({ path, query, operator }) {
      requireRole(operator, 'staff')
      const { limit, afterId } = pageById(query)
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const rows = await listLabs(knex, account.id, toFlag(query.active), afterId, limit + 1)
      const { shown, nextCursor } = cutPage(rows, limit, ({ id }) => [id])
      return { status: 200, body: { labs: shown.map(toLabRow), nextCursor } }
    },

    async getLab({ path, operator }) {
      requireRole(operator, 'staff')
      return { status: 200, body: toLabRow(requireLabOf(operator, await findLabOfAnyAccount(knex, path.labID))) }
    },

    async updateLab({ path, body, operator, audit }) {
      requireRole(operator, 'admin')
      const lab = requireLabOf(operator, await findLabOfAnyAccount(knex, path.labID))
      const updated = await database.transaction(async (trx) => {
        await audit.record(trx, lab.accountId, { labID: lab.id })
        return updateLab(trx, lab, body)
      })
      return { status: 200, body: toLabRow(updated) }
    },
  }
}

function toLabRow({ id, createdAt, ...rest }: Lab) {
  return { labID: id, ...rest, createdAt: createdAt.toISOString() }
}
