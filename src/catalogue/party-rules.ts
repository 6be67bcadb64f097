/**
 * Which party a call may or must name, by the account's mode (specification: account modes; decisions 2 and 7). Pure.
 */
import type { AccountMode } from '../accounts/accounts-repository.ts'
import { DomainError, unknownId } from '../errors.ts'

export type PartyKind = 'corporate' | 'doctor' | 'hospital'

/** Wire names of the fields that carry a party, and the kinds of party that each may name. */
export const PARTY_FIELD_KINDS = {
  corporateUser: ['corporate'],
  organization: ['doctor', 'hospital'],
  referredOrganization: ['doctor'],
  referredHospitalOrganization: ['hospital'],
} as const satisfies Record<string, readonly PartyKind[]>

export type PartyField = keyof typeof PARTY_FIELD_KINDS

/** A party as a call names it; not yet looked up. */
export interface NamedParty {
  field: 'corporateUser' | 'organization'
  id: string
}

export interface PartyParameters {
  corporateUser?: string | undefined
  organization?: string | undefined
}

/**
 * The one party of a call to the catalogue or to the webhooks.
 * @returns undefined on a catch-all account
 * @throws 400 when both are sent, none where one is needed, or one where none is allowed
 */
export function partyOfCall(mode: AccountMode, sent: PartyParameters): NamedParty | undefined {
  const party = optionalPartyOfCall(mode, sent)
  if (party || mode === 'catch_all') return party
  throw partyFault('a party-scoped account must send corporateUser or organization', 'party_required', BOTH)
}

/**
 * The same for the calls that leave the party to a party-scoped account.
 * @returns undefined where none is sent
 * @throws 400 when both are sent, or one where none is allowed
 */
export function optionalPartyOfCall(mode: AccountMode, sent: PartyParameters): NamedParty | undefined {
  const named = BOTH.flatMap((field) => (sent[field] === undefined ? [] : [{ field, id: sent[field] }]))
  const fields = named.map(({ field }) => field)
  if (mode === 'catch_all' && named.length > 0) {
    throw partyFault('a catch-all account must not send corporateUser or organization', 'party_not_allowed', fields)
  }
  if (named.length > 1) {
    throw partyFault('corporateUser and organization must not be sent together', 'party_ambiguous', fields)
  }
  return named[0]
}

const BOTH = ['corporateUser', 'organization'] as const

const FAULT_OF_FIELD = {
  party_required: 'one of the two is required',
  party_not_allowed: 'must not be sent',
  party_ambiguous: 'must not be sent together with the other one',
} as const

function partyFault(
  details: string,
  code: keyof typeof FAULT_OF_FIELD,
  fields: readonly NamedParty['field'][],
): DomainError {
  return new DomainError('bad_request', code, details, {
    fields: fields.map((field) => ({ field, message: FAULT_OF_FIELD[code] })),
  })
}

/** The 400 for an id that is no party of the account, or one of a kind that the field does not name. */
export function unknownParty(field: PartyField, id: string): DomainError {
  return unknownId('party', id, field, field)
}
