import type { Knex } from 'knex'
import type { Account } from '../accounts/accounts-repository.ts'
import { labForbidden } from '../errors.ts'
import type { AccountHandler, HandlerDeps } from '../operations.ts'
import { findLab, listActiveLabs } from './labs-repository.ts'
import { listPackages } from './packages-repository.ts'
import { findPartyOfField } from './parties-repository.ts'
import { partyOfCall, unknownParty, type PartyParameters } from './party-rules.ts'
import { listTests } from './tests-repository.ts'

interface CatalogueHandlers {
  listLabs: AccountHandler<'listLabs'>
  listTests: AccountHandler<'listTests'>
  listPackages: AccountHandler<'listPackages'>
}

export function catalogueHandlers({ database: { knex } }: HandlerDeps): CatalogueHandlers {
  return {
    async listLabs({ account }) {
      const labs = await listActiveLabs(knex, account.id)
      return { status: 200, body: { branches: labs.map(({ id, name, contact }) => ({ branchID: id, name, contact })) } }
    },

    async listTests({ account, query }) {
      const partyId = await findPriceParty(knex, account, query)
      const tests = await listTests(knex, account.id, query.branchID, partyId)
      return {
        status: 200,
        body: {
          tests: tests.map(({ id, name, code, cost, serviceId }) => ({
            _id: id,
            name,
            code,
            cost,
            ...(serviceId === null ? {} : { serviceID: serviceId }),
          })),
        },
      }
    },

    async listPackages({ account, query }) {
      const partyId = await findPriceParty(knex, account, query)
      const packages = await listPackages(knex, account.id, query.branchID, partyId)
      return {
        status: 200,
        body: {
          packages: packages.map(({ id, name, code, total, tests }) => ({
            _id: id,
            name,
            code,
            total,
            tests: tests.map((test) => ({ test: test.id, name: test.name })),
          })),
        },
      }
    },
  }
}

/**
 * Whose prices a call gets, after every check that comes before the list: the mode's party rule, the lab, the party.
 * @returns undefined for the standard prices
 */
async function findPriceParty(
  knex: Knex,
  account: Account,
  query: PartyParameters & { branchID: string },
): Promise<string | undefined> {
  const named = partyOfCall(account.mode, query)
  const lab = await findLab(knex, account.id, query.branchID)
  if (!lab?.active) throw labForbidden('branchID')
  if (!named) return undefined
  const party = await findPartyOfField(knex, account.id, named.field, named.id)
  if (!party) throw unknownParty(named.field, named.id)
  return party.id
}
