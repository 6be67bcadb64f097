/**
 * Negotiated prices as the operator lists and removes them. A test's stand in one table, a package's in another.
 */
import type { Knex } from 'knex'
import { isIdShaped } from '../ids.ts'
import { renewCatalogueVersionOf } from './catalogue-versions-repository.ts'

export interface PricedThing {
  kind: 'test' | 'package'
  id: string
}

export interface PartyPrice {
  partyId: string
  item: PricedThing
  price: number
}

const TABLES = {
  test: { prices: 'party_test_prices', id: 'test_id', price: 'cost', items: 'tests' },
  package: { prices: 'party_package_prices', id: 'package_id', price: 'price', items: 'packages' },
} as const

/**
 * By party and then by test or package; their ids never meet.
 * @param after party and item of the last one seen
 */
export async function listPartyPrices(
  knex: Knex,
  lab: { accountId: string; id: string },
  partyId: string | undefined,
  after: { partyId: string; itemId: string } | undefined,
  limit: number,
): Promise<PartyPrice[]> {
  if (partyId !== undefined && !isIdShaped(partyId)) return []
  const ofKind = (kind: PricedThing['kind']) => {
    const { prices, id, price, items } = TABLES[kind]
    const query = knex(`${prices} as p`)
      .join(`${items} as i`, 'i.id', `p.${id}`)
      .where({ 'i.account_id': lab.accountId, 'i.lab_id': lab.id })
      // No other party has a price of the lab, and without this those of all accounts would be looked through.
      .whereIn('p.party_id', knex('parties').where({ account_id: lab.accountId }).select('id'))
      .select('p.party_id', { item_id: `p.${id}`, price: `p.${price}`, kind: knex.raw('?', [kind]) })
      .orderBy(['p.party_id', `p.${id}`])
      .limit(limit)
    if (partyId !== undefined) query.where('p.party_id', partyId)
    if (after) query.whereRaw(`(p.party_id, p.${id}) > (?, ?)`, [after.partyId, after.itemId])
    return query
  }
  const rows = (await Promise.all([ofKind('test'), ofKind('package')])).flat()
  const keyOf = (row: { party_id: string; item_id: string }) => `${row.party_id} ${row.item_id}`
  return rows
    .sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1))
    .slice(0, limit)
    .map((row) => ({ partyId: row.party_id, item: { kind: row.kind, id: row.item_id }, price: row.price }))
}

/** @returns what it was; undefined when there was none */
export async function removePartyPrice(
  trx: Knex.Transaction,
  partyId: string,
  item: PricedThing,
): Promise<number | undefined> {
  const { prices, id, price, items } = TABLES[item.kind]
  const scope = { party_id: partyId, [id]: item.id }
  const row = await trx(prices).where(scope).forUpdate().first(price)
  if (!row) return undefined
  await trx(prices).where(scope).delete()
  await renewCatalogueVersionOf(trx, items, item.id)
  return row[price]
}
