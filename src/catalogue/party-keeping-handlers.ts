/**
 * How the operator keeps the parties of an account.
 */
import { findAccount } from '../accounts/accounts-repository.ts'
import { requireAccountOf, requireRole } from '../auth/operator-rules.ts'
import { notFound } from '../errors.ts'
import { newId } from '../ids.ts'
import { inKeyedTransaction } from '../idempotency/idempotency.ts'
import type { HandlerDeps, OperatorHandler } from '../handlers.ts'
import { cutPage, pageById } from '../paging.ts'
import { findParty, insertParty, listParties, updateParty, type Party } from './parties-repository.ts'

interface PartyKeepingHandlers {
  createParty: OperatorHandler<'createParty'>
  listParties: OperatorHandler<'listParties'>
  updateParty: OperatorHandler<'updateParty'>
}

export function partyKeepingHandlers({ database, clock }: HandlerDeps): PartyKeepingHandlers {
  const { knex } = database
  return {
    async createParty({ path, body, operator, audit, idempotency }) {
      requireRole(operator, 'admin')
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const party: Party = {
        id: newId(clock.nowMs()),
        accountId: account.id,
        kind: body.kind,
        name: body.name,
        createdAt: clock.now(),
      }
      return inKeyedTransaction(database, idempotency, async (trx) => {
        await insertParty(trx, party)
        await audit.record(trx, account.id, { partyId: party.id })
        return { status: 201, body: toPartyRow(party) }
      })
    },

    async listParties({ path, query, operator }) {
      requireRole(operator, 'staff')
      const { limit, afterId } = pageById(query)
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const rows = await listParties(knex, account.id, query, afterId, limit + 1)
      const { shown, nextCursor } = cutPage(rows, limit, ({ id }) => [id])
      return { status: 200, body: { parties: shown.map(toPartyRow), nextCursor } }
    },

    async updateParty({ path, body, operator, audit }) {
      requireRole(operator, 'admin')
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const party = await findParty(knex, account.id, path.partyId)
      if (!party) throw notFound('party not found')
      const updated = await database.transaction(async (trx) => {
        await audit.record(trx, account.id, { partyId: party.id })
        return updateParty(trx, party, body)
      })
      return { status: 200, body: toPartyRow(updated) }
    },
  }
}

function toPartyRow({ id, createdAt, ...rest }: Party) {
  return { partyId: id, ...rest, createdAt: createdAt.toISOString() }
}
