/**
 * How the operator keeps what billing accepts: lead sources, rate lists and their prices.
 */
import { findAccount } from '../accounts/accounts-repository.ts'
import { requireAccountOf, requireLabOf, requireRole } from '../auth/operator-rules.ts'
import { findLabOfAnyAccount } from '../catalogue/labs-repository.ts'
import { findPackage } from '../catalogue/packages-repository.ts'
import { findTest } from '../catalogue/tests-repository.ts'
import { badRequest, unknownId } from '../errors.ts'
import type { HandlerDeps, OperatorHandler } from '../operations.ts'
import { listOperatorValues, updateOperatorValues, updateRateListPrice } from './operator-lists-repository.ts'
import { notListed } from './pre-booking-rules.ts'

interface BillingKeepingHandlers {
  setLeadSources: OperatorHandler<'setLeadSources'>
  setRateLists: OperatorHandler<'setRateLists'>
  setRateListPrice: OperatorHandler<'setRateListPrice'>
}

export function billingKeepingHandlers({ database }: HandlerDeps): BillingKeepingHandlers {
  const { knex } = database
  return {
    async setLeadSources({ path, body, operator }) {
      requireRole(operator, 'admin')
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const leadSources = tidy(body.leadSources)
      await database.transaction((trx) => updateOperatorValues(trx, account.id, 'lead_source', leadSources))
      return { status: 200, body: { accountId: account.id, leadSources } }
    },

    async setRateLists({ path, body, operator }) {
      requireRole(operator, 'admin')
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const rateListTypes = tidy(body.rateListTypes)
      await database.transaction((trx) => updateOperatorValues(trx, account.id, 'rate_list_type', rateListTypes))
      return { status: 200, body: { accountId: account.id, rateListTypes } }
    },

    async setRateListPrice({ path, body, operator }) {
      requireRole(operator, 'admin')
      const { rateListType, price } = body
      if ((body.test === undefined) === (body.package === undefined)) {
        throw badRequest('exactly one of test and package must be sent')
      }
      const lab = requireLabOf(operator, await findLabOfAnyAccount(knex, path.labID))
      const types = await listOperatorValues(knex, lab.accountId, 'rate_list_type')
      if (!types.includes(rateListType)) throw notListed('rateListType', types, 'unknown_rate_list_type')
      const answer = { labID: lab.id, rateListType, price }
      if (body.test !== undefined) {
        const test = await findTest(knex, lab.accountId, body.test)
        if (test?.labId !== lab.id) throw unknownId('test', body.test, 'test')
        await updateRateListPrice(knex, lab.accountId, rateListType, test.id, price)
        return { status: 200, body: { ...answer, test: test.id } }
      }
      const pack = await findPackage(knex, lab.accountId, body.package!)
      if (pack?.labId !== lab.id) throw unknownId('package', body.package!, 'package')
      await updateRateListPrice(knex, lab.accountId, rateListType, pack.id, price)
      return { status: 200, body: { ...answer, package: pack.id } }
    },
  }
}

/** Trimmed, each once: two values that look alike would be two. */
function tidy(values: string[]): string[] {
  return [...new Set(values.map((value) => value.trim()).filter(Boolean))]
}
