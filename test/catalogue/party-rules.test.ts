import { expect, test } from 'vitest'
import { optionalPartyOfCall, partyOfCall } from '../../src/catalogue/party-rules.ts'

const corporate = { corporateUser: 'c' }
const organization = { organization: 'o' }
const both = { ...corporate, ...organization }

test('a party-scoped account names exactly one of the two', () => {
  expect(partyOfCall('party_scoped', corporate)).toEqual({ field: 'corporateUser', id: 'c' })
  expect(partyOfCall('party_scoped', organization)).toEqual({ field: 'organization', id: 'o' })
})

test('a party-scoped account that names none is told that one is required', () => {
  expect(() => partyOfCall('party_scoped', {})).toThrow(
    expect.objectContaining({ kind: 'bad_request', code: 'party_required' }),
  )
})

test('a party-scoped account that names both is told that they must not go together', () => {
  for (const rule of [partyOfCall, optionalPartyOfCall]) {
    expect(() => rule('party_scoped', both)).toThrow(
      expect.objectContaining({ kind: 'bad_request', code: 'party_ambiguous' }),
    )
  }
})

test('a catch-all account names none, and is told which fields to leave out', () => {
  for (const rule of [partyOfCall, optionalPartyOfCall]) {
    expect(rule('catch_all', {})).toBeUndefined()
    for (const sent of [corporate, organization, both]) {
      const fields = Object.keys(sent).map((field) => expect.objectContaining({ field }))
      expect(() => rule('catch_all', sent)).toThrow(
        expect.objectContaining({ code: 'party_not_allowed', extras: expect.objectContaining({ fields }) }),
      )
    }
  }
})

test('where the party is left to a party-scoped account it may name none', () => {
  expect(optionalPartyOfCall('party_scoped', {})).toBeUndefined()
  expect(optionalPartyOfCall('party_scoped', organization)).toEqual({ field: 'organization', id: 'o' })
})
