import type { Knex } from 'knex'
import { isIdShaped } from '../ids.ts'
import { PARTY_FIELD_KINDS, type PartyField, type PartyKind } from './party-rules.ts'

export interface Party {
  id: string
  accountId: string
  kind: PartyKind
  name: string
  createdAt: Date
}

export async function insertParty(knex: Knex, party: Party): Promise<void> {
  await knex('parties').insert({
    id: party.id,
    account_id: party.accountId,
    kind: party.kind,
    name: party.name,
    created_at: party.createdAt,
  })
}

/** A party of the account, whatever its kind. */
export async function findParty(knex: Knex, accountId: string, partyId: string): Promise<Party | undefined> {
  if (!isIdShaped(partyId)) return undefined
  const row = await knex('parties').where({ account_id: accountId, id: partyId }).first()
  return row && { id: row.id, accountId: row.account_id, kind: row.kind, name: row.name, createdAt: row.created_at }
}

/** A party of the account that the field may name: a doctor's id is no corporateUser. */
export async function findPartyOfField(
  knex: Knex,
  accountId: string,
  field: PartyField,
  partyId: string,
): Promise<Party | undefined> {
  const party = await findParty(knex, accountId, partyId)
  const kinds: readonly PartyKind[] = PARTY_FIELD_KINDS[field]
  return party && kinds.includes(party.kind) ? party : undefined
}
