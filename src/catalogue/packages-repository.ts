import type { Knex } from 'knex'
import { isDuplicate } from '../../db/connection.ts'
import { isIdShaped } from '../ids.ts'

export interface Package {
  id: string
  accountId: string
  labId: string
  name: string
  code: string
  total: number
  createdAt: Date
}

export interface PackageWithTests extends Package {
  /** In the order in which the package names them. */
  tests: { id: string; name: string }[]
}

/** @returns false when the lab already has a package with this code: the unique key decides it */
export async function insertPackage(trx: Knex.Transaction, pack: Package, testIds: string[]): Promise<boolean> {
  try {
    await trx('packages').insert({
      id: pack.id,
      account_id: pack.accountId,
      lab_id: pack.labId,
      name: pack.name,
      code: pack.code,
      total: pack.total,
      created_at: pack.createdAt,
    })
  } catch (error) {
    if (isDuplicate(error)) return false
    throw error
  }
  const rows = testIds.map((testId, position) => ({ package_id: pack.id, position, test_id: testId }))
  if (rows.length > 0) await trx('package_tests').insert(rows)
  return true
}

/** @param partyId whose negotiated price counts where there is one; undefined: the standard price */
export async function listPackages(
  knex: Knex,
  accountId: string,
  labId: string,
  partyId: string | undefined,
): Promise<PackageWithTests[]> {
  const query = knex('packages as k').where({ 'k.account_id': accountId, 'k.lab_id': labId })
  const contents = await query
    .clone()
    .join('package_tests as kt', 'kt.package_id', 'k.id')
    .join('tests as t', 't.id', 'kt.test_id')
    .orderBy(['kt.package_id', 'kt.position'])
    .select('kt.package_id', 't.id', 't.name')
  const testsOf = new Map<string, { id: string; name: string }[]>()
  for (const row of contents) {
    const test = { id: row.id, name: row.name }
    const tests = testsOf.get(row.package_id)
    if (tests) tests.push(test)
    else testsOf.set(row.package_id, [test])
  }
  query.orderBy(['k.name', 'k.id']).select('k.*')
  if (partyId !== undefined) {
    query
      .leftJoin('party_package_prices as p', (join) =>
        join.on('p.package_id', 'k.id').andOn('p.party_id', knex.raw('?', [partyId])),
      )
      .select({ negotiated_price: 'p.price' })
  }
  const rows = await query
  return rows.map((row) => ({
    ...toPackage({ ...row, total: row.negotiated_price ?? row.total }),
    tests: testsOf.get(row.id) ?? [],
  }))
}

export async function findPackage(knex: Knex, accountId: string, packageId: string): Promise<Package | undefined> {
  if (!isIdShaped(packageId)) return undefined
  const row = await knex('packages').where({ account_id: accountId, id: packageId }).first()
  return row && toPackage(row)
}

/** Sets what a party pays for a package; a price that is there already is replaced. */
export async function updatePartyPackagePrice(
  knex: Knex,
  partyId: string,
  packageId: string,
  price: number,
): Promise<void> {
  await knex('party_package_prices')
    .insert({ party_id: partyId, package_id: packageId, price })
    .onConflict()
    .merge(['price'])
}

function toPackage(row: Record<string, unknown>): Package {
  return {
    id: row.id as string,
    accountId: row.account_id as string,
    labId: row.lab_id as string,
    name: row.name as string,
    code: row.code as string,
    total: row.total as number,
    createdAt: row.created_at as Date,
  }
}
