/**
 * How the operator keeps the tests of a lab.
 */
import { requireLabOf, requireRole } from '../auth/operator-rules.ts'
import { clipped, conflict, notFound, type DomainError } from '../errors.ts'
import { newId } from '../ids.ts'
import { inKeyedTransaction } from '../idempotency/idempotency.ts'
import type { HandlerDeps, OperatorHandler } from '../handlers.ts'
import { cutPage, pageById } from '../paging.ts'
import { toFlag } from './catalogue-filters.ts'
import { findLabOfAnyAccount, shareCatalogue, type Lab } from './labs-repository.ts'
import { findTest, insertTest, listTestsOfLab, removeTest, updateTest, type Test } from './tests-repository.ts'

interface TestKeepingHandlers {
  createTest: OperatorHandler<'createTest'>
  listLabTests: OperatorHandler<'listLabTests'>
  updateTest: OperatorHandler<'updateTest'>
  removeTest: OperatorHandler<'removeTest'>
}

export function testKeepingHandlers({ database, clock }: HandlerDeps): TestKeepingHandlers {
  const { knex } = database

  async function getTestOf(lab: Lab, testId: string): Promise<Test> {
    const test = await findTest(knex, lab.accountId, testId)
    if (test?.labId !== lab.id) throw testNotFound()
    return test
  }

  return {
    async createTest({ path, body, operator, audit, idempotency }) {
      requireRole(operator, 'admin')
      const lab = requireLabOf(operator, await findLabOfAnyAccount(knex, path.labID))
      const test: Test = {
        id: newId(clock.nowMs()),
        accountId: lab.accountId,
        labId: lab.id,
        name: body.name,
        code: body.code,
        cost: body.cost,
        serviceId: body.serviceID ?? null,
        active: true,
        createdAt: clock.now(),
      }
      return inKeyedTransaction(database, idempotency, async (trx) => {
        const taken = await insertTest(trx, test)
        if (taken) throw duplicate(taken, test.code, test.serviceId)
        await audit.record(trx, lab.accountId, { labID: lab.id, testId: test.id })
        return { status: 201, body: toTestRow(test) }
      })
    },

    async listLabTests({ path, query, operator }) {
      requireRole(operator, 'staff')
      const { limit, afterId } = pageById(query)
      const lab = requireLabOf(operator, await findLabOfAnyAccount(knex, path.labID))
      const filter = { name: query.name, code: query.code, active: toFlag(query.active) }
      const rows = await listTestsOfLab(knex, lab, filter, afterId, limit + 1)
      const { shown, nextCursor } = cutPage(rows, limit, ({ id }) => [id])
      return { status: 200, body: { tests: shown.map(toTestRow), nextCursor } }
    },

    async updateTest({ path, body, operator, audit }) {
      requireRole(operator, 'admin')
      const lab = requireLabOf(operator, await findLabOfAnyAccount(knex, path.labID))
      const test = await getTestOf(lab, path.testId)
      const { serviceID: serviceId, ...changes } = body
      const updated = await database.transaction(async (trx) => {
        await shareCatalogue(trx, lab)
        const outcome = await updateTest(trx, test, { ...changes, serviceId })
        if (!outcome) throw testNotFound()
        if (typeof outcome === 'string') throw duplicate(outcome, body.code ?? test.code, serviceId ?? test.serviceId)
        await audit.record(trx, lab.accountId, { labID: lab.id, testId: test.id })
        return outcome
      })
      return { status: 200, body: toTestRow(updated) }
    },

    async removeTest({ path, operator, audit }) {
      requireRole(operator, 'admin')
      const lab = requireLabOf(operator, await findLabOfAnyAccount(knex, path.labID))
      const test = await getTestOf(lab, path.testId)
      const removed = await database.transaction(async (trx) => {
        await shareCatalogue(trx, lab)
        const outcome = await removeTest(trx, test, clock.now())
        if (!outcome) throw testNotFound()
        if (typeof outcome === 'string') {
          const details = `the package ${clipped(outcome)} contains this test: take it out first, or set the test inactive`
          throw conflict(details, 'test_in_use')
        }
        await audit.record(trx, lab.accountId, { labID: lab.id, testId: test.id })
        return outcome
      })
      return { status: 200, body: toTestRow(removed) }
    },
  }
}

function testNotFound(): DomainError {
  return notFound('test not found')
}

function duplicate(what: 'code' | 'serviceID', code: string, serviceId: string | null): DomainError {
  if (what === 'code') return conflict(`code ${clipped(code)} already exists in this lab`, 'duplicate_code')
  return conflict(`serviceID ${clipped(serviceId ?? '')} already exists in this lab`, 'duplicate_service_id')
}

function toTestRow({ id, labId, name, code, cost, serviceId, active, createdAt }: Test) {
  const serviceID = serviceId === null ? {} : { serviceID: serviceId }
  return { testId: id, labID: labId, name, code, cost, ...serviceID, active, createdAt: createdAt.toISOString() }
}
