import type { Knex } from 'knex'
import type { PricedThing } from '../catalogue/party-prices-repository.ts'

export interface RateListPrice {
  rateListType: string
  item: PricedThing
  price: number
}

/** Sets what a test or package costs under a rate list; a price that is there already is replaced. */
export async function updateRateListPrice(
  knex: Knex,
  accountId: string,
  rateListType: string,
  itemId: string,
  price: number,
): Promise<void> {
  await knex('rate_list_prices')
    .insert({ account_id: accountId, rate_list_type: rateListType, item_id: itemId, price })
    .onConflict()
    .merge(['price'])
}

/**
 * Those of the lab's tests and packages, by rate list and then by item.
 * @param after rate list and item of the last one seen
 */
export async function listRateListPrices(
  knex: Knex,
  lab: { accountId: string; id: string },
  rateListType: string | undefined,
  after: { rateListType: string; itemId: string } | undefined,
  limit: number,
): Promise<RateListPrice[]> {
  if (rateListType !== undefined && !isExact(rateListType)) return []
  const query = knex('rate_list_prices as p')
    .leftJoin('tests as t', 't.id', 'p.item_id')
    .leftJoin('packages as k', 'k.id', 'p.item_id')
    .where('p.account_id', lab.accountId)
    .where((either) => either.where('t.lab_id', lab.id).orWhere('k.lab_id', lab.id))
    .orderBy(['p.rate_list_type', 'p.item_id'])
    .limit(limit)
    .select('p.rate_list_type', 'p.item_id', 'p.price', { test_id: 't.id' })
  if (rateListType !== undefined) query.where('p.rate_list_type', rateListType)
  if (after) query.whereRaw('(p.rate_list_type, p.item_id) > (?, ?)', [after.rateListType, after.itemId])
  return (await query).map((row) => ({
    rateListType: row.rate_list_type,
    item: { kind: row.test_id === null ? 'package' : 'test', id: row.item_id },
    price: row.price,
  }))
}

/** The lists' names are stored without blanks around them, and to the server one with blanks behind it is the same. */
function isExact(rateListType: string): boolean {
  return rateListType === rateListType.trim()
}

/** @returns what it was; undefined when there was none */
export async function removeRateListPrice(
  trx: Knex.Transaction,
  accountId: string,
  rateListType: string,
  itemId: string,
): Promise<number | undefined> {
  if (!isExact(rateListType)) return undefined
  const scope = { account_id: accountId, rate_list_type: rateListType, item_id: itemId }
  const row = await trx('rate_list_prices').where(scope).forUpdate().first('price')
  if (!row) return undefined
  await trx('rate_list_prices').where(scope).delete()
  return row.price
}
