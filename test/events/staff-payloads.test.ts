import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { Bill, BillItem } from '../../src/billing/bill-rules.ts'
import type { EntryItem } from '../../src/crm/entry-rules.ts'
import { billCompleted, billCreated, billDeleted } from '../../src/events/bill-payloads.ts'
import type { Booking } from '../../src/crm/entry-rules.ts'
import { bookingRescheduled, phlebotomistAssigned } from '../../src/events/entry-payloads.ts'
import type { RecordedEvent } from '../../src/events/event-types.ts'
import { reportCompleted } from '../../src/events/report-payloads.ts'
import type { BillReport } from '../../src/reports/report-rules.ts'
import { ContractChecker } from '../support/contract-checker.ts'

const contract = new ContractChecker('client.yaml')
const EVENT_ID = '01m7vm63q8aahtnmat708mh7jk'
const ID = '01m7vm63q8pywwxhanpv700bdz'
const NOW = new Date('2026-11-20T10:15:00.000Z')

const units = fc.constantFrom('x', 'é', '😀', '\u0001', '"', '\u2028', 'ह')
const text = fc
  .tuple(units, fc.integer({ min: 1, max: 4096 }))
  .map(([unit, n]) => [...unit.repeat(n)].slice(0, 4096).join(''))
const money = fc.option(fc.integer({ min: 0, max: 999_999_999_999 }).map((cents) => Number((cents / 100).toFixed(2))))
const item = fc.record({
  kind: fc.constantFrom('test' as const, 'package' as const),
  itemId: fc.option(fc.constant(ID)),
  name: text,
  price: money,
})
const parties = { corporateId: fc.option(fc.constant(ID)), doctorId: fc.option(fc.constant(ID)) }

/** At most 20 KB, and as the contract says. */
function requireSound(event: RecordedEvent, schema: string): void {
  expect(event.body.length).toBeLessThanOrEqual(20_000)
  contract.checkSchema(`#/components/schemas/${schema}`, JSON.parse(event.body.toString('utf8')))
}

const BILL: Bill = {
  id: ID,
  accountId: ID,
  labId: ID,
  version: 1,
  status: 'created',
  entryId: null,
  preBookingId: ID,
  patientId: null,
  integratorId: null,
  patientName: 'Asha',
  contact: null,
  corporateId: null,
  doctorId: null,
  hospitalId: null,
  items: [],
  discountAmount: null,
  totalAmount: null,
  createdAt: NOW,
  completedAt: null,
  deletedAt: null,
}

test('bills and reports never have more than 20 KB and always fit their schema, whatever they are of', () => {
  const billItem = fc
    .tuple(item, fc.option(fc.array(text, { maxLength: 100 })))
    .map(([fields, tests]): BillItem => ({ ...fields, tests, reportId: null }))
  const fields = fc.record({
    integratorId: fc.option(text),
    patientName: text,
    items: fc.array(billItem, { maxLength: 100 }),
    discountAmount: money,
    totalAmount: money,
    ...parties,
  })
  const report: BillReport = {
    id: ID,
    accountId: ID,
    labId: ID,
    billId: ID,
    patientId: null,
    version: 3,
    status: 'signed_off',
    fileId: ID,
    amended: false,
    reportDate: NOW,
    tests: [],
    createdAt: NOW,
  }
  fc.assert(
    fc.property(fields, fc.array(text, { maxLength: 400 }), (made, tests) => {
      const whole: Bill = { ...BILL, ...made }
      requireSound(billCreated(EVENT_ID, whole), 'BillCreatedEvent')
      requireSound(billDeleted(EVENT_ID, NOW, { ...whole, status: 'deleted', deletedAt: NOW }), 'BillDeletedEvent')
      const completed: Bill = { ...whole, status: 'completed', completedAt: NOW }
      requireSound(billCompleted(EVENT_ID, NOW, completed), 'BillCompletedEvent')
      const reportUrl = `https://lis.example.com/files/reports/${ID}?expires=1&signature=${'0'.repeat(64)}`
      const surroundings = { bill: whole, labName: made.patientName, reportUrl }
      requireSound(reportCompleted(EVENT_ID, NOW, { ...report, tests }, surroundings), 'ReportCompletedEvent')
    }),
    { numRuns: 60 },
  )
})

test('bookings that changed do the same, with who and what was before', () => {
  const fields = fc.record({
    firstName: text,
    integratorId: fc.option(text),
    items: fc.array(item as fc.Arbitrary<EntryItem>, { maxLength: 200 }),
    ...parties,
  })
  const booking: Omit<Booking, 'firstName' | 'integratorId' | 'items'> = {
    id: ID,
    accountId: ID,
    labId: ID,
    version: 2,
    phase: 'booking',
    lastName: null,
    contact: null,
    email: null,
    corporateId: null,
    doctorId: null,
    hospitalId: null,
    bookingType: 'Lab Visit',
    scheduledAt: NOW,
    bookingStatus: 'Phlebotomist Assigned',
    paymentStatus: 'Pending',
    paymentMethod: null,
    convertedAt: NOW,
    assignedTo: null,
    phlebotomist: { id: ID, name: 'ह'.repeat(200) },
    discountAmount: null,
    totalAmount: null,
    details: {},
    createdAt: NOW,
  }
  fc.assert(
    fc.property(fields, text, (made, name) => {
      const whole: Booking = { ...booking, ...made }
      requireSound(phlebotomistAssigned(EVENT_ID, NOW, whole, { id: ID, name }), 'BookingPhlebotomistAssignedEvent')
      requireSound(bookingRescheduled(EVENT_ID, NOW, whole, NOW), 'BookingRescheduledEvent')
    }),
    { numRuns: 60 },
  )
})

test('the tests of an unmapped package are shortened with their number, as every list is', () => {
  const tests = Array.from({ length: 100 }, (_, n) => `${n} `.padEnd(100, 'ह'))
  const packages = [tests, ['CBC']].map((names) => ({ kind: 'package' as const, itemId: null, name: 'Set', price: null, tests: names, reportId: null })) // prettier-ignore
  const event = billCreated(EVENT_ID, { ...BILL, items: packages })
  requireSound(event, 'BillCreatedEvent')
  const { bill, truncated } = JSON.parse(event.body.toString('utf8')).data
  expect(truncated).toBe(true)
  expect(bill.unmappedPackages).toMatchObject([{ tests: tests.slice(0, 50), testsCount: 100 }, { tests: ['CBC'] }])
  expect(bill.unmappedPackages[1]).not.toHaveProperty('testsCount')
  expect(bill).not.toHaveProperty('unmappedPackagesCount')
})
