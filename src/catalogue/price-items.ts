/**
 * The test or the package that a call about prices names.
 */
import type { Knex } from 'knex'
import { badRequest, unknownId } from '../errors.ts'
import { isIdShaped } from '../ids.ts'
import type { Lab } from './labs-repository.ts'
import { findPackage } from './packages-repository.ts'
import type { PricedThing } from './party-prices-repository.ts'
import { findTest } from './tests-repository.ts'

export interface NamedItem {
  test?: string | undefined
  package?: string | undefined
}

/** @throws 400 unless exactly one of the two is named */
export function itemOf(named: NamedItem): PricedThing {
  if ((named.test === undefined) === (named.package === undefined)) {
    throw badRequest('exactly one of test and package must be sent')
  }
  return named.test === undefined ? { kind: 'package', id: named.package! } : { kind: 'test', id: named.test }
}

/** Whether the lab has it, active or not. */
export async function isItemOf(knex: Knex, lab: Lab, { kind, id }: PricedThing): Promise<boolean> {
  const found = kind === 'test' ? await findTest(knex, lab.accountId, id) : await findPackage(knex, lab.accountId, id)
  return found?.labId === lab.id
}

/**
 * It can't be removed before the transaction ends: a removal that took its prices would leave this one behind, for ever.
 * @throws 400 for one that the lab does not have
 */
export async function claimItemOf(trx: Knex.Transaction, lab: Lab, { kind, id }: PricedThing): Promise<void> {
  const scope = { account_id: lab.accountId, lab_id: lab.id, id, removed_at: null }
  const row = isIdShaped(id) && (await trx(`${kind}s`).where(scope).forShare().first('id'))
  if (!row) throw unknownId(kind, id, kind)
}
