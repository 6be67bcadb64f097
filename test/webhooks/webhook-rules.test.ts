import { expect, test } from 'vitest'
import {
  duplicateWebhook,
  mergeEvents,
  overlapWarnings,
  scopeOf,
  scopeOfOptional,
} from '../../src/webhooks/webhook-rules.ts'

const CORPORATE = { field: 'corporateUser', id: 'c1' } as Parameters<typeof scopeOf>[0]
const ORGANIZATION = { field: 'organization', id: 'o1' } as Parameters<typeof scopeOf>[0]

test('a party narrows what a call reaches to its own webhooks', () => {
  expect(scopeOf(CORPORATE)).toEqual({ corporateId: 'c1' })
  expect(scopeOf(ORGANIZATION)).toEqual({ organizationId: 'o1' })
  expect(scopeOf(undefined)).toBe('whole_lab')
})

test('a call that leaves the party out reaches every party on a party-scoped account alone', () => {
  expect(scopeOfOptional('party_scoped', undefined)).toBe('every_party')
  expect(scopeOfOptional('catch_all', undefined)).toBe('whole_lab')
  expect(scopeOfOptional('party_scoped', CORPORATE)).toEqual({ corporateId: 'c1' })
})

test('an event that is named twice counts once, in the order of the sender', () => {
  expect(mergeEvents(['report.send', 'lead.created', 'report.send'])).toEqual(['report.send', 'lead.created'])
})

test('a clash names the events, the field, and what to do about it', () => {
  const clash = duplicateWebhook(['lead.created', 'report.send'], 'events')
  expect(clash.code).toBe('duplicate_webhook')
  expect(clash.message).toBe('the party already has an active webhook for lead.created, report.send')
  expect(duplicateWebhook(['lead.created'], '_id').message).toContain('; delete that one first')
})

test('each event that arrives more than once has a sentence, the others have none', () => {
  const others = new Map([['lead.created', { all: 1, bound: 0 }], ['report.send', { all: 2, bound: 0 }], ['bill.created', { all: 3, bound: 1 }]] as const) // prettier-ignore
  expect(overlapWarnings(['lead.created', 'lead.updated', 'report.send', 'bill.created'] as Parameters<typeof overlapWarnings>[0], others)).toEqual([
    'lead.created is also delivered to another active webhook of this lab',
    'report.send is also delivered to 2 other active webhooks of this lab',
    'bill.created is also delivered to 3 other active webhooks of this lab, 1 of them where it is of their party',
  ]) // prettier-ignore
})
