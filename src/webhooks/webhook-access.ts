/**
 * The lab and the party of a call to the webhooks, looked up within the caller's account.
 */
import type { Knex } from 'knex'
import type { Account } from '../accounts/accounts-repository.ts'
import { findLab, type Lab } from '../catalogue/labs-repository.ts'
import { findPartyOfField } from '../catalogue/parties-repository.ts'
import { unknownParty, type NamedParty } from '../catalogue/party-rules.ts'
import { labForbidden } from '../errors.ts'

/**
 * A lab of the account, active or not.
 * @throws 403 for every other one
 */
export async function getLab(knex: Knex, account: Account, labId: string): Promise<Lab> {
  const lab = await findLab(knex, account.id, labId)
  if (!lab) throw labForbidden('labID')
  return lab
}

/** @throws 400 for a party that the account does not have */
export async function requireParty(knex: Knex, account: Account, party: NamedParty | undefined): Promise<void> {
  if (!party) return
  if (!(await findPartyOfField(knex, account.id, party.field, party.id))) throw unknownParty(party.field, party.id)
}
