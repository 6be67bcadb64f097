import type { Knex } from 'knex'
import { isIdShaped } from '../ids.ts'
import { whereBeginsWith } from './catalogue-filters.ts'
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
  return row && toParty(row)
}

/** The oldest first. */
export async function listParties(
  knex: Knex,
  accountId: string,
  filter: { kind?: PartyKind | undefined; name?: string | undefined },
  afterId: string | undefined,
  limit: number,
): Promise<Party[]> {
  const query = knex('parties').where({ account_id: accountId }).orderBy('id').limit(limit)
  if (filter.kind !== undefined) query.where({ kind: filter.kind })
  if (filter.name !== undefined) query.modify(whereBeginsWith, 'name', filter.name)
  if (afterId !== undefined) query.where('id', '>', afterId)
  return (await query).map(toParty)
}

export async function updateParty(
  trx: Knex.Transaction,
  party: Party,
  { name }: { name?: string | undefined },
): Promise<Party> {
  const scope = { account_id: party.accountId, id: party.id }
  await trx('parties').where(scope).update({ id: party.id, name })
  return toParty(await trx('parties').where(scope).first())
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

function toParty(row: Record<string, any>): Party {
  return { id: row.id, accountId: row.account_id, kind: row.kind, name: row.name, createdAt: row.created_at }
}
