/**
 * How the lab keeps its catalogue: tests, packages, and what a party pays.
 */
import { requireLabOf, requireRole } from '../auth/operator-rules.ts'
import { badRequest, clipped, conflict, unknownId } from '../errors.ts'
import { newId } from '../ids.ts'
import type { HandlerDeps, OperatorHandler } from '../operations.ts'
import { findLabOfAnyAccount } from './labs-repository.ts'
import { findPackage, insertPackage, updatePartyPackagePrice } from './packages-repository.ts'
import { findParty } from './parties-repository.ts'
import { findTest, insertTest, listTestNames, updatePartyTestPrice } from './tests-repository.ts'

interface CatalogueKeepingHandlers {
  createTest: OperatorHandler<'createTest'>
  createPackage: OperatorHandler<'createPackage'>
  setPartyPrice: OperatorHandler<'setPartyPrice'>
}

export function catalogueKeepingHandlers({ database, clock }: HandlerDeps): CatalogueKeepingHandlers {
  const { knex } = database
  return {
    async createTest({ path, body, operator }) {
      requireRole(operator, 'admin')
      const lab = requireLabOf(operator, await findLabOfAnyAccount(knex, path.labID))
      const test = {
        id: newId(clock.nowMs()),
        accountId: lab.accountId,
        labId: lab.id,
        name: body.name,
        code: body.code,
        cost: body.cost,
        serviceId: body.serviceID ?? null,
        createdAt: clock.now(),
      }
      const taken = await insertTest(knex, test)
      if (taken === 'code') throw duplicateCode(test.code)
      if (taken) {
        const details = `serviceID ${clipped(test.serviceId!)} already exists in this lab`
        throw conflict(details, 'duplicate_service_id')
      }
      const serviceID = test.serviceId === null ? {} : { serviceID: test.serviceId }
      const { id, labId, name, code, cost, createdAt } = test
      return {
        status: 201,
        body: { testId: id, labID: labId, name, code, cost, ...serviceID, createdAt: createdAt.toISOString() },
      }
    },

    async createPackage({ path, body, operator }) {
      requireRole(operator, 'admin')
      const lab = requireLabOf(operator, await findLabOfAnyAccount(knex, path.labID))
      const names = await listTestNames(knex, lab.accountId, lab.id, body.tests)
      const unknown = body.tests.findIndex((testId) => !names.has(testId))
      if (unknown >= 0) throw unknownId('test', body.tests[unknown]!, `tests.${unknown}`)
      const testIds = [...new Set(body.tests)]
      const pack = {
        id: newId(clock.nowMs()),
        accountId: lab.accountId,
        labId: lab.id,
        name: body.name,
        code: body.code,
        total: body.total,
        createdAt: clock.now(),
      }
      const isNew = await database.transaction((trx) => insertPackage(trx, pack, testIds))
      if (!isNew) throw duplicateCode(pack.code)
      const { id, labId, name, code, total, createdAt } = pack
      const tests = testIds.map((testId) => ({ test: testId, name: names.get(testId)! }))
      return {
        status: 201,
        body: { packageId: id, labID: labId, name, code, total, tests, createdAt: createdAt.toISOString() },
      }
    },

    async setPartyPrice({ path, body, operator }) {
      requireRole(operator, 'admin')
      const { partyId, price } = body
      if ((body.test === undefined) === (body.package === undefined)) {
        throw badRequest('exactly one of test and package must be sent')
      }
      const lab = requireLabOf(operator, await findLabOfAnyAccount(knex, path.labID))
      const party = await findParty(knex, lab.accountId, partyId)
      if (!party) throw unknownId('party', partyId, 'partyId')
      if (body.test !== undefined) {
        const test = await findTest(knex, lab.accountId, body.test)
        if (test?.labId !== lab.id) throw unknownId('test', body.test, 'test')
        await updatePartyTestPrice(knex, party.id, test.id, price)
        return { status: 200, body: { labID: lab.id, partyId, test: test.id, price } }
      }
      const pack = await findPackage(knex, lab.accountId, body.package!)
      if (pack?.labId !== lab.id) throw unknownId('package', body.package!, 'package')
      await updatePartyPackagePrice(knex, party.id, pack.id, price)
      return { status: 200, body: { labID: lab.id, partyId, package: pack.id, price } }
    },
  }
}

function duplicateCode(code: string) {
  return conflict(`code ${clipped(code)} already exists in this lab`, 'duplicate_code')
}
