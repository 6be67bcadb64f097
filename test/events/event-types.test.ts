import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Entry, EntryItem } from '../../src/crm/entry-rules.ts'
import type { Booking } from '../../src/crm/entry-rules.ts'
import { bookingCreated, leadCreated } from '../../src/events/entry-payloads.ts'
import { EVENT_TYPES } from '../../src/events/event-types.ts'
import { ContractChecker } from '../support/contract-checker.ts'

const contract = new ContractChecker('client.yaml')
const EVENT_ID = '01m7vm63q8aahtnmat708mh7jk'
const MAX_BYTES = 20_000

function entry(fields: Partial<Entry> = {}): Entry {
  return {
    id: '01m7vm63q8pywwxhanpv700bdz',
    accountId: '01jqqqsyh0vzvszvskctnwr22v',
    labId: '01jqqvgz40vzvszvskctnwr22v',
    version: 1,
    phase: 'lead',
    integratorId: 'CRM-1',
    firstName: 'Asha',
    lastName: null,
    contact: null,
    email: null,
    corporateId: null,
    doctorId: null,
    hospitalId: null,
    bookingType: null,
    scheduledAt: null,
    bookingStatus: null,
    paymentStatus: null,
    paymentMethod: null,
    convertedAt: null,
    assignedTo: null,
    phlebotomist: null,
    discountAmount: null,
    totalAmount: null,
    details: {},
    items: [],
    createdAt: new Date('2026-11-20T10:15:00.000Z'),
    ...fields,
  }
}

function booking(fields: Partial<Entry> = {}): Booking {
  return entry({
    phase: 'booking',
    bookingType: 'Lab Visit',
    scheduledAt: new Date('2026-11-21T02:00:00.000Z'),
    bookingStatus: 'Scheduled',
    paymentStatus: 'Pending',
    convertedAt: new Date('2026-11-20T10:15:00.000Z'),
    ...fields,
  }) as Booking
}

const bodyOf = ({ body }: { body: Buffer }) => JSON.parse(body.toString('utf8'))
const CORPORATE = '01jwqg5h4029yzse4k8gpdjzy1'
const DOCTOR = '01jwt2j840c2gpn2gvre1s79xp'
const HOSPITAL = '01jwwmyz40pfpek08wdesy1mdp'

test('the event types are those of the contract, each with a delivery of its own', () => {
  const { schemas } = contract.document.components as { schemas: { EventName: { enum: string[] } } }
  expect([...EVENT_TYPES]).toEqual(schemas.EventName.enum)
  expect([...EVENT_TYPES].sort()).toEqual(Object.keys(contract.document.webhooks as object).sort())
})

describe('the body of an event', () => {
  test('fits its schema and carries the record', () => {
    const lead = bodyOf(leadCreated(EVENT_ID, entry({ details: { source: 'website', priority: 'high' } })))
    contract.checkSchema('#/components/schemas/LeadCreatedEvent', lead)
    expect(lead).toMatchObject({ id: `evt_${EVENT_ID}`, type: 'lead.created', timestamp: '2026-11-20T10:15:00.000Z' })
    expect(lead.data.lead).toMatchObject({ source: 'website', priority: 'high' })
    expect(lead.data).not.toHaveProperty('truncated')
    contract.checkSchema('#/components/schemas/BookingCreatedEvent', bodyOf(bookingCreated(EVENT_ID, booking())))
  })

  test.each([
    [{ corporateId: CORPORATE }, { corporateUser: CORPORATE }],
    [{ doctorId: DOCTOR }, { organization: DOCTOR }],
    [{ hospitalId: HOSPITAL }, { organization: HOSPITAL }],
    [{ doctorId: DOCTOR, hospitalId: HOSPITAL }, { organization: DOCTOR }],
    [
      { corporateId: CORPORATE, hospitalId: HOSPITAL },
      { corporateUser: CORPORATE, organization: HOSPITAL },
    ],
    [{}, {}],
  ])('of a record with %j names %j outside, and both referring ids inside', (parties: Partial<Entry>, expected) => {
    for (const event of [leadCreated(EVENT_ID, entry(parties)), bookingCreated(EVENT_ID, booking(parties))]) {
      const { corporateUser, organization, data } = bodyOf(event)
      expect({ corporateUser, organization }).toEqual({
        corporateUser: undefined,
        organization: undefined,
        ...expected,
      })
      expect(data.lead ?? data.booking).toMatchObject({
        corporateUser: parties.corporateId ?? null,
        referredOrganization: parties.doctorId ?? null,
        referredHospitalOrganization: parties.hospitalId ?? null,
      })
    }
  })

  test('cuts a name at 100 characters, not within one, and says so', () => {
    const { data } = bodyOf(leadCreated(EVENT_ID, entry({ firstName: '😀'.repeat(101), lastName: '😀'.repeat(100) })))
    expect(data.lead.firstName).toBe('😀'.repeat(100))
    expect(data.lead.lastName).toBe('😀'.repeat(100))
    expect(data.truncated).toBe(true)
  })

  test('shortens long lists and says how many there were', () => {
    const items: EntryItem[] = Array.from({ length: 100 }, (_, n) => ({
      kind: 'test',
      itemId: n % 2 === 0 ? DOCTOR : null,
      name: `${n} `.padEnd(4096, 'é'),
      price: n,
    }))
    const { data } = bodyOf(leadCreated(EVENT_ID, entry({ items })))
    expect(data.truncated).toBe(true)
    expect([data.lead.testsCount, data.lead.unmappedTestsCount]).toEqual([50, 50])
    expect(data.lead.tests.length).toBeGreaterThan(0)
    expect(data.lead.tests[0].name.startsWith('0 ')).toBe(true)
    expect(data.lead).not.toHaveProperty('packagesCount')
  })

  test("keeps the integrator's own id whole as long as it can", () => {
    const integratorId = 'x'.repeat(4096)
    const { integratorID, data } = bodyOf(leadCreated(EVENT_ID, entry({ integratorId })))
    expect([integratorID, data.lead.integratorID]).toEqual([integratorId, integratorId])
    // Four bytes each: once it fits, twice it does not.
    const emoji = '😀'.repeat(4096)
    const wide = bodyOf(leadCreated(EVENT_ID, entry({ integratorId: emoji })))
    expect([wide.integratorID, wide.data.lead.integratorID]).toEqual([emoji, '😀'.repeat(100)])
    expect(wide.data.truncated).toBe(true)
    const worst = bodyOf(leadCreated(EVENT_ID, entry({ integratorId: '\u0001'.repeat(4096) })))
    expect([worst.integratorID.length, worst.data.truncated]).toEqual([1000, true])
  })

  test('never has more than 20 KB and always fits its schema, whatever was sent', () => {
    const units = fc.constantFrom('x', 'é', '😀', '\u0001', '"', '\\', '\u2028', 'ह')
    const text = fc
      .tuple(units, fc.integer({ min: 1, max: 4096 }))
      .map(([unit, n]) => [...unit.repeat(n)].slice(0, 4096).join(''))
    const money = fc.option(
      fc.integer({ min: 0, max: 999_999_999_999 }).map((cents) => Number((cents / 100).toFixed(2))),
    )
    const item: fc.Arbitrary<EntryItem> = fc.record({
      kind: fc.constantFrom('test', 'package'),
      itemId: fc.option(fc.constant(DOCTOR)),
      name: text,
      price: money,
    })
    const fields = fc.record({
      integratorId: text,
      firstName: text,
      lastName: fc.option(text),
      corporateId: fc.option(fc.constant(CORPORATE)),
      doctorId: fc.option(fc.constant(DOCTOR)),
      hospitalId: fc.option(fc.constant(HOSPITAL)),
      paymentMethod: fc.option(fc.constantFrom('UPI', 'Card', 'Cash')),
      details: fc.record({ source: text }),
      items: fc.array(item, { maxLength: 400 }),
      totalAmount: money,
    })
    fc.assert(
      fc.property(fields, (made) => {
        for (const event of [leadCreated(EVENT_ID, entry(made)), bookingCreated(EVENT_ID, booking(made))]) {
          expect(event.body.length).toBeLessThanOrEqual(MAX_BYTES)
          const schema = event.type === 'lead.created' ? 'LeadCreatedEvent' : 'BookingCreatedEvent'
          contract.checkSchema(`#/components/schemas/${schema}`, bodyOf(event))
        }
      }),
      { numRuns: 150 },
    )
  })
})
