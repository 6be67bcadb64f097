/**
 * What a party pays for tests and packages of a lab, in place of the standard price.
 */
import { requireLabOf, requireRole } from '../auth/operator-rules.ts'
import { notFound, unknownId } from '../errors.ts'
import type { HandlerDeps, OperatorHandler } from '../handlers.ts'
import { cutPage, pageOf, requireIds } from '../paging.ts'
import { findLabOfAnyAccount } from './labs-repository.ts'
import { updatePartyPackagePrice } from './packages-repository.ts'
import { findParty } from './parties-repository.ts'
import { listPartyPrices, removePartyPrice, type PartyPrice, type PricedThing } from './party-prices-repository.ts'
import { claimItemOf, isItemOf, itemOf } from './price-items.ts'
import { updatePartyTestPrice } from './tests-repository.ts'

interface PartyPriceHandlers {
  setPartyPrice: OperatorHandler<'setPartyPrice'>
  listPartyPrices: OperatorHandler<'listPartyPrices'>
  removePartyPrice: OperatorHandler<'removePartyPrice'>
}

export function partyPriceHandlers({ database }: HandlerDeps): PartyPriceHandlers {
  const { knex } = database
  return {
    async setPartyPrice({ path, body, operator, audit }) {
      requireRole(operator, 'admin')
      const { partyId, price } = body
      const item = itemOf(body)
      const lab = requireLabOf(operator, await findLabOfAnyAccount(knex, path.labID))
      if (!(await findParty(knex, lab.accountId, partyId))) throw unknownId('party', partyId, 'partyId')
      await database.transaction(async (trx) => {
        await claimItemOf(trx, lab, item)
        const update = item.kind === 'test' ? updatePartyTestPrice : updatePartyPackagePrice
        await update(trx, partyId, item.id, price)
        await audit.record(trx, lab.accountId, { labID: lab.id, partyId, ...byKind(item) })
      })
      return { status: 200, body: toPriceRow(lab.id, { partyId, item, price }) }
    },

    async listPartyPrices({ path, query, operator }) {
      requireRole(operator, 'staff')
      const { limit, after } = pageOf(query, 2)
      const [partyId, itemId] = requireIds(after ?? [])
      const lab = requireLabOf(operator, await findLabOfAnyAccount(knex, path.labID))
      const last = partyId === undefined ? undefined : { partyId, itemId: itemId! }
      const rows = await listPartyPrices(knex, lab, query.partyId, last, limit + 1)
      const { shown, nextCursor } = cutPage(rows, limit, (row) => [row.partyId, row.item.id])
      return { status: 200, body: { prices: shown.map((row) => toPriceRow(lab.id, row)), nextCursor } }
    },

    async removePartyPrice({ path, query, operator, audit }) {
      requireRole(operator, 'admin')
      const { partyId } = query
      const item = itemOf(query)
      const lab = requireLabOf(operator, await findLabOfAnyAccount(knex, path.labID))
      const isKnown = (await findParty(knex, lab.accountId, partyId)) && (await isItemOf(knex, lab, item))
      if (!isKnown) throw notFound('price not found')
      const price = await database.transaction(async (trx) => {
        const removed = await removePartyPrice(trx, partyId, item)
        if (removed === undefined) throw notFound('price not found')
        await audit.record(trx, lab.accountId, { labID: lab.id, partyId, ...byKind(item) })
        return removed
      })
      return { status: 200, body: toPriceRow(lab.id, { partyId, item, price }) }
    },
  }
}

function toPriceRow(labID: string, { partyId, item, price }: PartyPrice) {
  return { labID, partyId, ...byKind(item), price }
}

/** As the wire names it. */
export function byKind({ kind, id }: PricedThing): { test: string } | { package: string } {
  return kind === 'test' ? { test: id } : { package: id }
}
