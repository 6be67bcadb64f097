import { expect, test } from 'vitest'
import {
  barcodeHash,
  barcodeOf,
  makePreBooking,
  notListed,
  requireKnownValues,
  type PreBookingReferences,
  type PreBookingRequest,
} from '../../src/billing/pre-booking-rules.ts'
import { toErrorResponse } from '../../src/error-response.ts'
import { mergeFaults } from '../../src/errors.ts'

const cbc = { id: 'cbc', name: 'CBC', price: 350 }
const known: PreBookingReferences = {
  leadSources: ['Website'],
  rateListTypes: ['Standard'],
  doctorIds: ['doctor'],
  hospitalIds: [],
  testsById: new Map([['cbc', cbc]]),
  testsByServiceId: new Map([['SRV-1', cbc]]),
  packages: new Map([['full', { id: 'full', name: 'Full', price: 999 }]]),
}
const request = (fields: Partial<PreBookingRequest> = {}): PreBookingRequest => ({
  labID: 'lab',
  patient_details: { first_name: 'Asha', gender: 'female', age: 40, age_type: 'year' },
  integrator_id: 'B-1',
  lead_source: 'Website',
  mapped_tests: [{ id: 'cbc' }],
  ...fields,
})

test.each([
  ['  A1 ', 'A1'],
  ['a1', 'a1'],
  ['   ', undefined],
  ['', undefined],
  [undefined, undefined],
])('the barcode %j counts as %j', (barCode, barcode) => {
  expect(barcodeOf(request(barCode === undefined ? {} : { barCode }))).toBe(barcode)
})

test('barcodes are compared by bytes: neither case nor accents fold', () => {
  const hashes = ['A1', 'a1', 'é', 'e', 'e\u0301'].map((barcode) => barcodeHash(barcode).toString('hex'))
  expect(new Set(hashes).size).toBe(5)
  expect(barcodeHash('A1').equals(barcodeHash('A1'))).toBe(true)
})

test('known values pass, by either id of a test', () => {
  const body = request({ doctor: 'doctor', mapped_tests: [{ service_id: 'SRV-1' }], rate_list_type: 'Standard' })
  expect(() => requireKnownValues(body, known)).not.toThrow()
})

test.each([
  [{ lead_source: 'Radio' }, 'lead_source must be one of Website'],
  [{ rate_list_type: 'Gold' }, 'rate_list_type must be one of Standard'],
  [{ doctor: 'x' }, 'doctor must be one of doctor'],
  [{ hospital: 'x' }, 'hospital x can not be sent: the account has none'],
  [{ mapped_tests: [{ id: 'x' }] }, 'mapped_tests.0.id'],
  [{ mapped_tests: [{ service_id: 'x' }] }, 'mapped_tests.0.service_id'],
  [{ mapped_packages: [{ id: 'x' }] }, 'mapped_packages.0.id'],
])('%j is refused, and the answer names it: %s', (fields, named) => {
  const thrown = expect(() => requireKnownValues(request(fields as Partial<PreBookingRequest>), known))
  thrown.toThrow(expect.objectContaining({ kind: 'bad_request' }))
  try {
    requireKnownValues(request(fields as Partial<PreBookingRequest>), known)
  } catch (error) {
    expect(JSON.stringify({ ...(error as object), message: (error as Error).message })).toContain(named)
  }
})

test('of a list all are named, whole; of one that is longer than an error can be, as many as there is room for', () => {
  const values = Array.from({ length: 103 }, (_, n) => `Source ${n}`)
  const told = (allowed: string[]) => {
    const fault = notListed('lead_source', allowed, 'unknown_lead_source', 'Radio')
    return toErrorResponse(mergeFaults([fault, fault]), 'r').body.error.details
  }
  expect(told(values)).toBe(
    Array(2)
      .fill(`lead_source must be one of ${values.join(', ')}, not Radio`)
      .join('; '),
  )
  const long = values.map((value) => value.padEnd(180, '.'))
  expect(told(long)).toBe(
    Array(2)
      .fill(`lead_source must be one of ${long.slice(0, 9).join(', ')} and 94 more, not Radio`)
      .join('; '),
  )
})

test('the stored items have the prices of the rate list; unmapped ones have none', () => {
  const body = request({
    mapped_packages: [{ id: 'full' }],
    unmapped_tests: ['Odd'],
    unmapped_packages_with_tests: [{ package_name: 'Set', tests: ['A', 'B'] }],
  })
  const made = makePreBooking(body, known, { id: 'p', accountId: 'a', now: new Date('2026-11-20T10:00:00Z') })
  expect(made).toMatchObject({ status: 'created', version: 1, lastName: null, barcode: null })
  expect(made.items).toEqual([
    { kind: 'test', itemId: 'cbc', name: 'CBC', price: 350, tests: null },
    { kind: 'package', itemId: 'full', name: 'Full', price: 999, tests: null },
    { kind: 'test', itemId: null, name: 'Odd', price: null, tests: null },
    { kind: 'package', itemId: null, name: 'Set', price: null, tests: ['A', 'B'] },
  ])
})
