import type { Knex } from 'knex'
import { isDuplicate } from '../../db/connection.ts'
import { isIdShaped } from '../ids.ts'

export interface Test {
  id: string
  accountId: string
  labId: string
  name: string
  code: string
  cost: number
  /** The operator's own id of the test. */
  serviceId: string | null
  createdAt: Date
}

/** @returns which of its values another test of the lab has; the unique keys decide it. undefined: it is written */
export async function insertTest(knex: Knex, test: Test): Promise<'code' | 'serviceID' | undefined> {
  try {
    await knex('tests').insert({
      id: test.id,
      account_id: test.accountId,
      lab_id: test.labId,
      name: test.name,
      code: test.code,
      cost: test.cost,
      service_id: test.serviceId,
      created_at: test.createdAt,
    })
    return undefined
  } catch (error) {
    if (!isDuplicate(error)) throw error
    const sameCode = await knex('tests').where({ lab_id: test.labId, code: test.code }).first('id')
    return sameCode ? 'code' : 'serviceID'
  }
}

/** @param partyId whose negotiated cost counts where there is one; undefined: the standard cost */
export async function listTests(
  knex: Knex,
  accountId: string,
  labId: string,
  partyId: string | undefined,
): Promise<Test[]> {
  const query = knex('tests as t').where({ 't.account_id': accountId, 't.lab_id': labId }).orderBy(['t.name', 't.id'])
  if (partyId === undefined) return (await query.select('t.*')).map(toTest)
  const rows = await query
    .leftJoin('party_test_prices as p', (join) =>
      join.on('p.test_id', 't.id').andOn('p.party_id', knex.raw('?', [partyId])),
    )
    .select('t.*', { negotiated_cost: 'p.cost' })
  return rows.map((row) => toTest({ ...row, cost: row.negotiated_cost ?? row.cost }))
}

export async function findTest(knex: Knex, accountId: string, testId: string): Promise<Test | undefined> {
  if (!isIdShaped(testId)) return undefined
  const row = await knex('tests').where({ account_id: accountId, id: testId }).first()
  return row && toTest(row)
}

/** The names of those ids that are tests of the lab. */
export async function listTestNames(
  knex: Knex,
  accountId: string,
  labId: string,
  testIds: string[],
): Promise<Map<string, string>> {
  const ids = testIds.filter(isIdShaped)
  if (ids.length === 0) return new Map()
  const rows = await knex('tests')
    .where({ account_id: accountId, lab_id: labId })
    .whereIn('id', ids)
    .select('id', 'name')
  return new Map(rows.map((row) => [row.id, row.name]))
}

/** Sets what a party pays for a test; a price that is there already is replaced. */
export async function updatePartyTestPrice(knex: Knex, partyId: string, testId: string, cost: number): Promise<void> {
  await knex('party_test_prices').insert({ party_id: partyId, test_id: testId, cost }).onConflict().merge(['cost'])
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
    createdAt: row.created_at as Date,
  }
}
