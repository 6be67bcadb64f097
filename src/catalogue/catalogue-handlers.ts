import type { Knex } from 'knex'
import type { Account } from '../accounts/accounts-repository.ts'
import { labForbidden } from '../errors.ts'
import { Representation } from '../representation.ts'
import { findCatalogueVersion } from './catalogue-versions-repository.ts'
import { CatalogueLists } from './catalogue-lists.ts'
import type { AccountHandler, HandlerDeps } from '../handlers.ts'
import { findLab, listActiveLabs } from './labs-repository.ts'
import { listPackages, type PackageWithTests } from './packages-repository.ts'
import { findPartyOfField } from './parties-repository.ts'
import { partyOfCall, unknownParty, type PartyParameters } from './party-rules.ts'
import { listTests, type ListedTest } from './tests-repository.ts'

interface CatalogueHandlers {
  listLabs: AccountHandler<'listLabs'>
  listTests: AccountHandler<'listTests'>
  listPackages: AccountHandler<'listPackages'>
}

export function catalogueHandlers({ database: { knex } }: HandlerDeps): CatalogueHandlers {
  const lists = new CatalogueLists()
  return {
    async listLabs({ account }) {
      const labs = await listActiveLabs(knex, account.id)
      return { status: 200, body: { branches: labs.map(({ id, name, contact }) => ({ branchID: id, name, contact })) } }
    },

    async listTests({ account, query }) {
      const partyId = await findPriceParty(knex, account, query)
      const version = await findCatalogueVersion(knex, query.branchID)
      const body = await lists.get(['tests', query.branchID, partyId], version, async () => {
        const tests = await listTests(knex, account.id, query.branchID, partyId)
        return Representation.of({ tests: tests.map(toTestRow) })
      })
      return { status: 200, body }
    },

    async listPackages({ account, query }) {
      const partyId = await findPriceParty(knex, account, query)
      const version = await findCatalogueVersion(knex, query.branchID)
      const body = await lists.get(['packages', query.branchID, partyId], version, async () => {
        const packages = await listPackages(knex, account.id, query.branchID, partyId)
        return Representation.of({ packages: packages.map(toPackageRow) })
      })
      return { status: 200, body }
    },
  }
}

function toTestRow({ id, name, code, cost, serviceId }: ListedTest) {
  return { _id: id, name, code, cost, ...(serviceId === null ? {} : { serviceID: serviceId }) }
}

function toPackageRow({ id, name, code, total, tests }: PackageWithTests) {
  return { _id: id, name, code, total, tests: tests.map((test) => ({ test: test.id, name: test.name })) }
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
