/**
 * How the operator keeps what billing accepts: lead sources, rate lists and their prices.
 */
import { findAccount } from '../accounts/accounts-repository.ts'
import { requireAccountOf, requireLabOf, requireRole } from '../auth/operator-rules.ts'
import { findLabOfAnyAccount } from '../catalogue/labs-repository.ts'
import { byKind } from '../catalogue/party-price-handlers.ts'
import { claimItemOf, isItemOf, itemOf } from '../catalogue/price-items.ts'
import { notFound } from '../errors.ts'
import type { HandlerDeps, OperatorHandler } from '../handlers.ts'
import { cutPage, pageOf, requireIds } from '../paging.ts'
import { listOperatorValues, updateOperatorValues } from './operator-lists-repository.ts'
import { notListed } from './pre-booking-rules.ts'
import {
  listRateListPrices,
  removeRateListPrice,
  updateRateListPrice,
  type RateListPrice,
} from './rate-list-prices-repository.ts'

interface BillingKeepingHandlers {
  getLeadSources: OperatorHandler<'getLeadSources'>
  setLeadSources: OperatorHandler<'setLeadSources'>
  getRateLists: OperatorHandler<'getRateLists'>
  setRateLists: OperatorHandler<'setRateLists'>
  setRateListPrice: OperatorHandler<'setRateListPrice'>
  listRateListPrices: OperatorHandler<'listRateListPrices'>
  removeRateListPrice: OperatorHandler<'removeRateListPrice'>
}

export function billingKeepingHandlers({ database }: HandlerDeps): BillingKeepingHandlers {
  const { knex } = database
  return {
    async getLeadSources({ path, operator }) {
      requireRole(operator, 'staff')
      const { id: accountId } = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const leadSources = await listOperatorValues(knex, accountId, 'lead_source')
      return { status: 200, body: { accountId, leadSources } }
    },

    async setLeadSources({ path, body, operator, audit }) {
      requireRole(operator, 'admin')
      const { id: accountId } = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const leadSources = tidy(body.leadSources)
      await database.transaction(async (trx) => {
        await updateOperatorValues(trx, accountId, 'lead_source', leadSources)
        await audit.record(trx, accountId, { accountId })
      })
      return { status: 200, body: { accountId, leadSources } }
    },

    async getRateLists({ path, operator }) {
      requireRole(operator, 'staff')
      const { id: accountId } = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const rateListTypes = await listOperatorValues(knex, accountId, 'rate_list_type')
      return { status: 200, body: { accountId, rateListTypes } }
    },

    async setRateLists({ path, body, operator, audit }) {
      requireRole(operator, 'admin')
      const { id: accountId } = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const rateListTypes = tidy(body.rateListTypes)
      await database.transaction(async (trx) => {
        await updateOperatorValues(trx, accountId, 'rate_list_type', rateListTypes)
        await audit.record(trx, accountId, { accountId })
      })
      return { status: 200, body: { accountId, rateListTypes } }
    },

    async setRateListPrice({ path, body, operator, audit }) {
      requireRole(operator, 'admin')
      const { rateListType, price } = body
      const item = itemOf(body)
      const lab = requireLabOf(operator, await findLabOfAnyAccount(knex, path.labID))
      const types = await listOperatorValues(knex, lab.accountId, 'rate_list_type')
      if (!types.includes(rateListType)) throw notListed('rateListType', types, 'unknown_rate_list_type')
      await database.transaction(async (trx) => {
        await claimItemOf(trx, lab, item)
        await updateRateListPrice(trx, lab.accountId, rateListType, item.id, price)
        await audit.record(trx, lab.accountId, { labID: lab.id, ...byKind(item) })
      })
      return { status: 200, body: toPriceRow(lab.id, { rateListType, item, price }) }
    },

    async listRateListPrices({ path, query, operator }) {
      requireRole(operator, 'staff')
      const { limit, after } = pageOf(query, 2)
      const last = after && { rateListType: after[0]!, itemId: requireIds([after[1]!])[0]! }
      const lab = requireLabOf(operator, await findLabOfAnyAccount(knex, path.labID))
      const rows = await listRateListPrices(knex, lab, query.rateListType, last, limit + 1)
      const { shown, nextCursor } = cutPage(rows, limit, (row) => [row.rateListType, row.item.id])
      return { status: 200, body: { prices: shown.map((row) => toPriceRow(lab.id, row)), nextCursor } }
    },

    async removeRateListPrice({ path, query, operator, audit }) {
      requireRole(operator, 'admin')
      const { rateListType } = query
      const item = itemOf(query)
      const lab = requireLabOf(operator, await findLabOfAnyAccount(knex, path.labID))
      if (!(await isItemOf(knex, lab, item))) throw notFound('price not found')
      const price = await database.transaction(async (trx) => {
        const removed = await removeRateListPrice(trx, lab.accountId, rateListType, item.id)
        if (removed === undefined) throw notFound('price not found')
        await audit.record(trx, lab.accountId, { labID: lab.id, ...byKind(item) })
        return removed
      })
      return { status: 200, body: toPriceRow(lab.id, { rateListType, item, price }) }
    },
  }
}

function toPriceRow(labID: string, { rateListType, item, price }: RateListPrice) {
  return { labID, rateListType, ...byKind(item), price }
}

/** Trimmed, each once: two values that look alike would be two. */
function tidy(values: string[]): string[] {
  return [...new Set(values.map((value) => value.trim()).filter(Boolean))]
}
