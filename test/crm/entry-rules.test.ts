import { describe, expect, test } from 'vitest'
import type { Account } from '../../src/accounts/accounts-repository.ts'
import { DEFAULT_CRM_SETTINGS } from '../../src/crm/crm-settings-rules.ts'
import {
  dayGuardsOf,
  makeEntry,
  notificationKindOf,
  requireKnownReferences,
  requireSoundEntry,
  type EntryReferences,
  type EntryRequest,
} from '../../src/crm/entry-rules.ts'
import { DomainError } from '../../src/errors.ts'

const NOW = new Date('2026-11-20T20:00:00.000Z')
const account = (mode: Account['mode'] = 'catch_all') => ({ id: 'a', mode, timeZone: 'Asia/Kolkata' }) as Account

const request = (fields: Partial<EntryRequest> = {}): EntryRequest => ({
  phase: 'lead',
  branchID: 'lab-1',
  integratorID: 'lead-1',
  first_name: 'Asha',
  contact: '9000000001',
  ...fields,
})

const references = (fields: Partial<EntryReferences> = {}): EntryReferences => ({
  labIsActive: true,
  partyKinds: new Map([
    ['corporate-1', 'corporate'],
    ['doctor-1', 'doctor'],
    ['hospital-1', 'hospital'],
  ]),
  testNames: new Map([['test-1', 'Glucose']]),
  packageNames: new Map([['package-1', 'Check-up']]),
  settings: { ...DEFAULT_CRM_SETTINGS, customFields: ['ward'], paymentGateways: ['PayFast'] },
  assigneeIsActive: true,
  lastTelecallerId: 't1',
  candidates: ['t1', 't2'].map((id) => ({ id, openLeads: 0 })),
  ...fields,
})

function faultOf(work: () => unknown): DomainError {
  try {
    work()
  } catch (error) {
    if (error instanceof DomainError) return error
    throw error
  }
  throw new Error('it was accepted')
}

const fieldsOf = ({ extras }: DomainError) => extras.fields?.map(({ field }) => field)

describe('what the request alone shows', () => {
  test('a party-scoped account must name one of the three parties; any one, or several, will do', () => {
    const fault = faultOf(() => requireSoundEntry(request(), account('party_scoped')))
    expect(fault.code).toBe('party_required')
    expect(fieldsOf(fault)).toEqual(['corporateUser', 'referredOrganization', 'referredHospitalOrganization'])
    for (const party of [
      { corporateUser: 'c' },
      { referredOrganization: 'd' },
      { referredHospitalOrganization: 'h', corporateUser: 'c' },
    ]) {
      expect(requireSoundEntry(request(party), account('party_scoped'))).toBeNull()
    }
    expect(requireSoundEntry(request(), account())).toBeNull()
  })

  test('a time without an offset is the account’s own; one that does not exist is refused by its field', () => {
    const at = (scheduledAt: string) => requireSoundEntry(request({ scheduledAt }), account())
    expect(at('2026-11-21T10:15:00')).toEqual(new Date('2026-11-21T04:45:00.000Z'))
    expect(at('2026-11-21T10:15:00+02:00')).toEqual(new Date('2026-11-21T08:15:00.000Z'))
    expect(fieldsOf(faultOf(() => at('2026-02-30T10:15:00Z')))).toEqual(['scheduledAt'])
  })
})

describe('what the database knows of it', () => {
  test('a lab that is not the account’s is a 403 that says nothing of the rest', () => {
    const fault = faultOf(() =>
      requireKnownReferences(request({ corporateUser: 'x' }), references({ labIsActive: false })),
    )
    expect(fault.kind).toBe('forbidden')
    expect(fault.message).toContain('branchID')
    expect(fieldsOf(fault)).toBeUndefined()
  })

  test('every id and value that is not known is named, with its place, in one answer', () => {
    const body = request({
      corporateUser: 'doctor-1',
      referredOrganization: 'hospital-9',
      tests: [{ test: 'test-1' }, { test: 'test-9' }],
      packages: [{ package: 'package-9' }],
      assignedTo: 't9',
      customFields: { ward: '3', colour: 'red' },
      paymentMethod: 'Barter',
    })
    const fault = faultOf(() => requireKnownReferences(body, references({ assigneeIsActive: false })))
    expect(fault.kind).toBe('bad_request')
    expect(fieldsOf(fault)).toEqual([
      'corporateUser',
      'referredOrganization',
      'tests.1.test',
      'packages.0.package',
      'assignedTo',
      'customFields.colour',
      'paymentMethod',
    ])
  })

  test('of thousands of unknown custom fields the first twenty are named', () => {
    const customFields = Object.fromEntries(Array.from({ length: 3000 }, (_, n) => [`f${n}`, 'x']))
    expect(fieldsOf(faultOf(() => requireKnownReferences(request({ customFields }), references())))).toHaveLength(20)
  })

  test('what the account has is accepted, its own payment gateway too', () => {
    const body = request({
      ...{ corporateUser: 'corporate-1', referredOrganization: 'doctor-1', referredHospitalOrganization: 'hospital-1' },
      ...{ tests: [{ test: 'test-1' }], packages: [{ package: 'package-1' }], assignedTo: 't1' },
      ...{ customFields: { ward: '3' }, paymentMethod: 'PayFast' },
    })
    expect(() => requireKnownReferences(body, references())).not.toThrow()
  })
})

describe('the entry', () => {
  const origin = { id: 'e', accountId: 'a', scheduledAt: null, now: NOW }

  test('a lead that names nobody goes to the next telecaller, one that names somebody to that one, a booking to nobody', () => {
    expect(makeEntry(request(), references(), origin).assignedTo).toBe('t2')
    expect(makeEntry(request({ assignedTo: 't7' }), references(), origin).assignedTo).toBe('t7')
    expect(makeEntry(request({ phase: 'booking' }), references(), origin).assignedTo).toBeNull()
  })

  test('a booking is scheduled, unpaid and converted now; a lead is none of it', () => {
    const [lead, booking] = (['lead', 'booking'] as const).map((phase) => makeEntry(request({ phase }), references(), origin)) // prettier-ignore
    expect(booking).toMatchObject({ bookingStatus: 'Scheduled', paymentStatus: 'Pending', convertedAt: NOW })
    expect(lead).toMatchObject({ bookingStatus: null, paymentStatus: null, convertedAt: null, version: 1 })
    expect([lead!, booking!].map(notificationKindOf)).toEqual(['NEW_LEAD', 'BOOKING_CONFIRMED'])
  })

  test('mapped tests have the catalogue’s name, unmapped ones what was sent; prices are kept, or none', () => {
    const body = request({
      tests: [{ test: 'test-1', cost: 120 }],
      packages: [{ package: 'package-1' }],
      unmappedTests: [{ name: 'Rare thing' }],
      unmappedPackages: [{ name: 'Bundle', price: 5 }],
    })
    expect(makeEntry(body, references(), origin).items).toEqual([
      { kind: 'test', itemId: 'test-1', name: 'Glucose', price: 120 },
      { kind: 'package', itemId: 'package-1', name: 'Check-up', price: null },
      { kind: 'test', itemId: null, name: 'Rare thing', price: null },
      { kind: 'package', itemId: null, name: 'Bundle', price: 5 },
    ])
  })

  test('only fields with a name in the contract are kept', () => {
    const body = { ...request({ notes: 'call late' }), surprise: 1, __proto__: { admin: true } } as EntryRequest
    expect(makeEntry(body, references(), origin).details).toEqual({ notes: 'call late' })
  })
})

describe('what keeps the day’s duplicates out', () => {
  const guards = (fields: Partial<EntryRequest>) =>
    dayGuardsOf(makeEntry(request(fields), references(), { id: 'e', accountId: 'a', scheduledAt: null, now: NOW }), 'Asia/Kolkata') // prettier-ignore

  test('the contact first, then the e-mail, on the day that it is where the account is', () => {
    expect(guards({ email: 'a@example.in' }).map(({ day, kind }) => [day, kind])).toEqual([
      ['2026-11-21', 'contact'],
      ['2026-11-21', 'email'],
    ])
  })

  test('an e-mail counts the same in whatever case, with blanks around it; one of blanks alone does not count', () => {
    const [a, b, c] = ['asha@example.in', ' Asha@Example.IN ', 'other@example.in'].map((email) => guards({ email })[1]!.valueHash) // prettier-ignore
    expect(a).toEqual(b)
    expect(a).not.toEqual(c)
    expect(guards({ email: '   ' })).toHaveLength(1)
  })
})
