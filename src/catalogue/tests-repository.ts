import type { Knex } from 'knex'
import { isDuplicate } from '../../db/connection.ts'
import { isIdShaped } from '../ids.ts'
import { withinPage, type CatalogueFilter } from './catalogue-filters.ts'
import { renewCatalogueVersion, renewCatalogueVersionOf } from './catalogue-versions-repository.ts'
import { removedCode } from './removed-code.ts'

export interface Test {
  id: string
  accountId: string
  labId: string
  name: string
  code: string
  cost: number
  /** The operator's own id of the test. */
  serviceId: string | null
  /** Whether it can be listed and ordered by integrators. */
  active: boolean
  createdAt: Date
}

/** As integrators see it. A lab may have thousands: only these columns are read. */
export type ListedTest = Pick<Test, 'id' | 'name' | 'code' | 'cost' | 'serviceId'>

/** Active unless said otherwise. */
export type NewTest = Omit<Test, 'active'> & Partial<Pick<Test, 'active'>>

/** What can change of a test. */
export type TestChanges = Partial<Pick<Test, 'name' | 'code' | 'cost' | 'serviceId' | 'active'>>

/** @returns which of its values another test of the lab has; the unique keys decide it. undefined: it is written */
export async function insertTest(knex: Knex, test: NewTest): Promise<'code' | 'serviceID' | undefined> {
  try {
    await knex('tests').insert({
      id: test.id,
      account_id: test.accountId,
      lab_id: test.labId,
      name: test.name,
      code: test.code,
      cost: test.cost,
      service_id: test.serviceId,
      active: test.active ?? true,
      created_at: test.createdAt,
    })
    await renewCatalogueVersion(knex, test.labId)
    return undefined
  } catch (error) {
    if (!isDuplicate(error)) throw error
    const sameCode = await knex('tests').where({ lab_id: test.labId, code: test.code }).first('id')
    return sameCode ? 'code' : 'serviceID'
  }
}

/** What integrators can order.
 * @param partyId whose negotiated cost counts where there is one; undefined: the standard cost */
export async function listTests(
  knex: Knex,
  accountId: string,
  labId: string,
  partyId: string | undefined,
): Promise<ListedTest[]> {
  const query = knex('tests as t')
    .where({ 't.account_id': accountId, 't.lab_id': labId, 't.active': true, 't.removed_at': null })
    .orderBy(['t.name', 't.id'])
    .select('t.id', 't.name', 't.code', { serviceId: 't.service_id' })
  if (partyId === undefined) return query.select('t.cost')
  return query
    .leftJoin('party_test_prices as p', (join) =>
      join.on('p.test_id', 't.id').andOn('p.party_id', knex.raw('?', [partyId])),
    )
    .select({ cost: knex.raw('COALESCE(p.cost, t.cost)') })
}

/** Active or not, unless it was removed. */
export async function findTest(knex: Knex, accountId: string, testId: string): Promise<Test | undefined> {
  if (!isIdShaped(testId)) return undefined
  const row = await knex('tests').where({ account_id: accountId, id: testId, removed_at: null }).first()
  return row && toTest(row)
}

/** The names of those ids that are tests of the lab, active or not. They can't be removed before the transaction ends. */
export async function claimTestNames(
  trx: Knex.Transaction,
  accountId: string,
  labId: string,
  testIds: string[],
): Promise<Map<string, string>> {
  const ids = testIds.filter(isIdShaped)
  if (ids.length === 0) return new Map()
  const rows = await trx('tests')
    .where({ account_id: accountId, lab_id: labId, removed_at: null })
    .whereIn('id', ids)
    .orderBy('id')
    .forShare()
    .select('id', 'name')
  return new Map(rows.map((row) => [row.id, row.name]))
}

/** Active or not, by id: the oldest first. */
export async function listTestsOfLab(
  knex: Knex,
  lab: { accountId: string; id: string },
  filter: CatalogueFilter,
  afterId: string | undefined,
  limit: number,
): Promise<Test[]> {
  const query = knex('tests').where({ account_id: lab.accountId, lab_id: lab.id })
  return (await query.modify(withinPage, filter, afterId, limit)).map(toTest)
}

/**
 * @returns the test as it is now, or which of its values another test of the lab has; the unique keys decide it. undefined: it
 *   was removed meanwhile
 */
export async function updateTest(
  trx: Knex.Transaction,
  test: Test,
  { name, code, cost, serviceId, active }: TestChanges,
): Promise<Test | 'code' | 'serviceID' | undefined> {
  const scope = { account_id: test.accountId, id: test.id, removed_at: null }
  try {
    const values = { id: test.id, name, code, cost, service_id: serviceId, active }
    if ((await trx('tests').where(scope).update(values)) === 0) return undefined
  } catch (error) {
    if (!isDuplicate(error)) throw error
    const sameCode = trx('tests').where({ lab_id: test.labId, code: code ?? test.code })
    return (await sameCode.whereNot({ id: test.id }).first('id')) ? 'code' : 'serviceID'
  }
  await renewCatalogueVersion(trx, test.labId)
  return toTest(await trx('tests').where(scope).first())
}

/**
 * Takes the test out of the catalogue, with its prices. The row stays for what names it; its code and its serviceID are free. The
 * lock comes first: a package that takes the test in at this moment comes before it, and is seen, or after it, and finds no test.
 * @returns what it was, or the code of a package that contains the test and keeps it from being removed; undefined when another
 *   call has removed it meanwhile
 */
export async function removeTest(trx: Knex.Transaction, test: Test, now: Date): Promise<Test | string | undefined> {
  const scope = { account_id: test.accountId, id: test.id, removed_at: null }
  const row = await trx('tests').where(scope).forUpdate().first()
  if (!row) return undefined
  const pack = await trx('package_tests as c')
    .join('packages as k', 'k.id', 'c.package_id')
    .where({ 'c.test_id': test.id, 'k.account_id': test.accountId, 'k.lab_id': test.labId })
    .whereNull('k.removed_at')
    .first('k.code')
  if (pack) return pack.code
  await trx('tests')
    .where(scope)
    .update({ active: false, removed_at: now, code: removedCode(test.id), service_id: null })
  await trx('party_test_prices').where({ test_id: test.id }).delete()
  await trx('rate_list_prices').where({ account_id: test.accountId, item_id: test.id }).delete()
  await renewCatalogueVersion(trx, test.labId)
  return { ...toTest(row), active: false }
}

/** Sets what a party pays for a test; a price that is there already is replaced. */
export async function updatePartyTestPrice(knex: Knex, partyId: string, testId: string, cost: number): Promise<void> {
  await knex('party_test_prices').insert({ party_id: partyId, test_id: testId, cost }).onConflict().merge(['cost'])
  await renewCatalogueVersionOf(knex, 'tests', testId)
}

function toTest(row: Record<string, unknown>): Test {
  return {
    id: row.id as string,
    accountId: row.account_id as string,
    labId: row.lab_id as string,
    name: row.name as string,
    code: row.code as string,
    cost: row.cost as number,
    serviceId: row.service_id as string | null,
    active: Boolean(row.active),
    createdAt: row.created_at as Date,
  }
}
