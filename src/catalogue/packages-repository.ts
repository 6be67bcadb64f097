import type { Knex } from 'knex'
import { isDuplicate } from '../../db/connection.ts'
import { isIdShaped } from '../ids.ts'
import { withinPage, type CatalogueFilter } from './catalogue-filters.ts'
import { renewCatalogueVersion, renewCatalogueVersionOf } from './catalogue-versions-repository.ts'
import { removedCode } from './removed-code.ts'

export interface Package {
  id: string
  accountId: string
  labId: string
  name: string
  code: string
  total: number
  /** Whether it can be listed and ordered by integrators. */
  active: boolean
  createdAt: Date
}

/** Active unless said otherwise. */
export type NewPackage = Omit<Package, 'active'> & Partial<Pick<Package, 'active'>>

/** What can change of a package besides its tests. */
export type PackageChanges = Partial<Pick<Package, 'name' | 'code' | 'total' | 'active'>>

export interface PackageWithTests extends Package {
  /** In the order in which the package names them. */
  tests: { id: string; name: string }[]
}

/** @returns false when the lab already has a package with this code: the unique key decides it */
export async function insertPackage(trx: Knex.Transaction, pack: NewPackage, testIds: string[]): Promise<boolean> {
  try {
    await trx('packages').insert({
      id: pack.id,
      account_id: pack.accountId,
      lab_id: pack.labId,
      name: pack.name,
      code: pack.code,
      total: pack.total,
      active: pack.active ?? true,
      created_at: pack.createdAt,
    })
  } catch (error) {
    if (isDuplicate(error)) return false
    throw error
  }
  await insertContents(trx, pack.id, testIds)
  await renewCatalogueVersion(trx, pack.labId)
  return true
}

async function insertContents(trx: Knex.Transaction, packageId: string, testIds: string[]): Promise<void> {
  const rows = testIds.map((testId, position) => ({ package_id: packageId, position, test_id: testId }))
  if (rows.length > 0) await trx('package_tests').insert(rows)
}

/**
 * What integrators can order. One view of both tables: a package that is committed between two looks would be listed without its
 * tests, or with those of before.
 * @param partyId whose negotiated price counts where there is one; undefined: the standard price
 */
export async function listPackages(
  knex: Knex,
  accountId: string,
  labId: string,
  partyId: string | undefined,
): Promise<PackageWithTests[]> {
  const read = (trx: Knex.Transaction) => readPackages(trx, accountId, labId, partyId)
  return knex.transaction(read, { isolationLevel: 'repeatable read' })
}

async function readPackages(
  knex: Knex.Transaction,
  accountId: string,
  labId: string,
  partyId: string | undefined,
): Promise<PackageWithTests[]> {
  const scope = { 'k.account_id': accountId, 'k.lab_id': labId, 'k.active': true, 'k.removed_at': null }
  const query = knex('packages as k').where(scope)
  const testsOf = await listContents(query.clone())
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

/** @param packages the query of `packages as k` whose contents are asked for; by package, in order */
async function listContents(packages: Knex.QueryBuilder): Promise<Map<string, PackageWithTests['tests']>> {
  const contents: { package_id: string; id: string; name: string }[] = await packages
    .join('package_tests as kt', 'kt.package_id', 'k.id')
    .join('tests as t', 't.id', 'kt.test_id')
    .orderBy(['kt.package_id', 'kt.position'])
    .select('kt.package_id', 't.id', 't.name')
  const byPackage = Map.groupBy(contents, (row) => row.package_id)
  return new Map([...byPackage].map(([packageId, rows]) => [packageId, rows.map(({ id, name }) => ({ id, name }))]))
}

async function withTests(knex: Knex, packages: Package[]): Promise<PackageWithTests[]> {
  const ids = packages.map(({ id }) => id)
  const testsOf = await listContents(knex('packages as k').whereIn('k.id', ids))
  return packages.map((pack) => ({ ...pack, tests: testsOf.get(pack.id) ?? [] }))
}

/** Active or not, by id: the oldest first. */
export async function listPackagesOfLab(
  knex: Knex,
  lab: { accountId: string; id: string },
  filter: CatalogueFilter,
  afterId: string | undefined,
  limit: number,
): Promise<PackageWithTests[]> {
  const query = knex('packages').where({ account_id: lab.accountId, lab_id: lab.id })
  return withTests(knex, (await query.modify(withinPage, filter, afterId, limit)).map(toPackage))
}

/**
 * @param testIds in place of those before; undefined: they stay
 * @returns the package as it is now; 'code' when another package of the lab has the code: the unique key decides it; undefined
 *   when it was removed meanwhile
 */
export async function updatePackage(
  trx: Knex.Transaction,
  pack: Package,
  { name, code, total, active }: PackageChanges,
  testIds: string[] | undefined,
): Promise<PackageWithTests | 'code' | undefined> {
  const scope = { account_id: pack.accountId, id: pack.id, removed_at: null }
  try {
    // Its lock makes two changes of the contents at once come one after the other.
    const changed = await trx('packages').where(scope).update({ id: pack.id, name, code, total, active })
    if (changed === 0) return undefined
  } catch (error) {
    if (isDuplicate(error)) return 'code'
    throw error
  }
  if (testIds !== undefined) {
    await trx('package_tests').where({ package_id: pack.id }).delete()
    await insertContents(trx, pack.id, testIds)
  }
  await renewCatalogueVersion(trx, pack.labId)
  const [updated] = await withTests(trx, [toPackage(await trx('packages').where(scope).first())])
  return updated
}

/**
 * Takes the package out of the catalogue, with its prices. The row stays for what names it; its code is free.
 * @returns what it was; undefined when another call has removed it meanwhile
 */
export async function removePackage(
  trx: Knex.Transaction,
  pack: Package,
  now: Date,
): Promise<PackageWithTests | undefined> {
  const scope = { account_id: pack.accountId, id: pack.id, removed_at: null }
  const row = await trx('packages').where(scope).forUpdate().first()
  if (!row) return undefined
  const [removed] = await withTests(trx, [{ ...toPackage(row), active: false }])
  await trx('packages')
    .where(scope)
    .update({ active: false, removed_at: now, code: removedCode(pack.id) })
  await trx('party_package_prices').where({ package_id: pack.id }).delete()
  await trx('rate_list_prices').where({ account_id: pack.accountId, item_id: pack.id }).delete()
  await renewCatalogueVersion(trx, pack.labId)
  return removed
}

/** Active or not, unless it was removed. */
export async function findPackage(knex: Knex, accountId: string, packageId: string): Promise<Package | undefined> {
  if (!isIdShaped(packageId)) return undefined
  const row = await knex('packages').where({ account_id: accountId, id: packageId, removed_at: null }).first()
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
  await renewCatalogueVersionOf(knex, 'packages', packageId)
}

function toPackage(row: Record<string, unknown>): Package {
  return {
    id: row.id as string,
    accountId: row.account_id as string,
    labId: row.lab_id as string,
    name: row.name as string,
    code: row.code as string,
    total: row.total as number,
    active: Boolean(row.active),
    createdAt: row.created_at as Date,
  }
}
