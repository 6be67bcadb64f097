/**
 * How the operator keeps the packages of a lab.
 */
import type { Knex } from 'knex'
import { requireLabOf, requireRole } from '../auth/operator-rules.ts'
import { clipped, conflict, notFound, unknownId, type DomainError } from '../errors.ts'
import { newId } from '../ids.ts'
import { inKeyedTransaction } from '../idempotency/idempotency.ts'
import type { HandlerDeps, OperatorHandler } from '../handlers.ts'
import { cutPage, pageById } from '../paging.ts'
import { toFlag } from './catalogue-filters.ts'
import { findLabOfAnyAccount, shareCatalogue, type Lab } from './labs-repository.ts'
import {
  findPackage,
  insertPackage,
  listPackagesOfLab,
  removePackage,
  updatePackage,
  type Package,
  type PackageWithTests,
} from './packages-repository.ts'
import { claimTestNames } from './tests-repository.ts'

interface PackageKeepingHandlers {
  createPackage: OperatorHandler<'createPackage'>
  listLabPackages: OperatorHandler<'listLabPackages'>
  updatePackage: OperatorHandler<'updatePackage'>
  removePackage: OperatorHandler<'removePackage'>
}

export function packageKeepingHandlers({ database, clock }: HandlerDeps): PackageKeepingHandlers {
  const { knex } = database

  async function getPackageOf(lab: Lab, packageId: string): Promise<Package> {
    const pack = await findPackage(knex, lab.accountId, packageId)
    if (pack?.labId !== lab.id) throw packageNotFound()
    return pack
  }

  return {
    async createPackage({ path, body, operator, audit, idempotency }) {
      requireRole(operator, 'admin')
      const lab = requireLabOf(operator, await findLabOfAnyAccount(knex, path.labID))
      const pack: Package = {
        id: newId(clock.nowMs()),
        accountId: lab.accountId,
        labId: lab.id,
        name: body.name,
        code: body.code,
        total: body.total,
        active: true,
        createdAt: clock.now(),
      }
      return inKeyedTransaction(database, idempotency, async (trx) => {
        const contents = await claimContents(trx, lab, body.tests)
        const ids = contents.map(({ id }) => id)
        if (!(await insertPackage(trx, pack, ids))) throw duplicateCode(pack.code)
        await audit.record(trx, lab.accountId, { labID: lab.id, packageId: pack.id })
        return { status: 201, body: toPackageRow({ ...pack, tests: contents }) }
      })
    },

    async listLabPackages({ path, query, operator }) {
      requireRole(operator, 'staff')
      const { limit, afterId } = pageById(query)
      const lab = requireLabOf(operator, await findLabOfAnyAccount(knex, path.labID))
      const filter = { name: query.name, code: query.code, active: toFlag(query.active) }
      const rows = await listPackagesOfLab(knex, lab, filter, afterId, limit + 1)
      const { shown, nextCursor } = cutPage(rows, limit, ({ id }) => [id])
      return { status: 200, body: { packages: shown.map(toPackageRow), nextCursor } }
    },

    async updatePackage({ path, body, operator, audit }) {
      requireRole(operator, 'admin')
      const lab = requireLabOf(operator, await findLabOfAnyAccount(knex, path.labID))
      const pack = await getPackageOf(lab, path.packageId)
      const { tests, ...changes } = body
      const updated = await database.transaction(async (trx) => {
        await shareCatalogue(trx, lab)
        const contents = tests && (await claimContents(trx, lab, tests))
        const ids = contents?.map(({ id }) => id)
        const outcome = await updatePackage(trx, pack, changes, ids)
        if (!outcome) throw packageNotFound()
        if (outcome === 'code') throw duplicateCode(body.code ?? pack.code)
        await audit.record(trx, lab.accountId, { labID: lab.id, packageId: pack.id })
        return outcome
      })
      return { status: 200, body: toPackageRow(updated) }
    },

    async removePackage({ path, operator, audit }) {
      requireRole(operator, 'admin')
      const lab = requireLabOf(operator, await findLabOfAnyAccount(knex, path.labID))
      const pack = await getPackageOf(lab, path.packageId)
      const removed = await database.transaction(async (trx) => {
        await shareCatalogue(trx, lab)
        const outcome = await removePackage(trx, pack, clock.now())
        if (!outcome) throw packageNotFound()
        await audit.record(trx, lab.accountId, { labID: lab.id, packageId: pack.id })
        return outcome
      })
      return { status: 200, body: toPackageRow(removed) }
    },
  }
}

/** @throws 400 for an id that is no test of the lab */
async function claimContents(trx: Knex.Transaction, lab: Lab, testIds: string[]): Promise<PackageWithTests['tests']> {
  const names = await claimTestNames(trx, lab.accountId, lab.id, testIds)
  const unknown = testIds.findIndex((testId) => !names.has(testId))
  if (unknown >= 0) throw unknownId('test', testIds[unknown]!, `tests.${unknown}`)
  return [...new Set(testIds)].map((id) => ({ id, name: names.get(id)! }))
}

function packageNotFound(): DomainError {
  return notFound('package not found')
}

function duplicateCode(code: string): DomainError {
  return conflict(`code ${clipped(code)} already exists in this lab`, 'duplicate_code')
}

function toPackageRow({ id, labId, name, code, total, tests, active, createdAt }: PackageWithTests) {
  const contents = tests.map((test) => ({ test: test.id, name: test.name }))
  return {
    packageId: id,
    labID: labId,
    name,
    code,
    total,
    tests: contents,
    active,
    createdAt: createdAt.toISOString(),
  }
}
