import { describe, expect, test } from 'vitest'
import {
  isReported,
  makeBill,
  nextBillStatus,
  reportTestsOf,
  type Bill,
  type BillItem,
  type BillSource,
} from '../../src/billing/bill-rules.ts'

const now = new Date('2026-11-20T10:00:00Z')
const origin = { id: 'bill', accountId: 'account', now }
const item = (fields: Partial<BillItem> = {}): BillItem => ({
  kind: 'test',
  itemId: 'cbc',
  name: 'CBC',
  price: null,
  tests: null,
  reportId: null,
  ...fields,
})
const source = (items: BillItem[], fields: Partial<BillSource> = {}): BillSource => ({
  labId: 'lab',
  integratorId: 'CRM-1',
  entryId: null,
  preBookingId: null,
  patientName: 'Asha',
  contact: null,
  corporateId: null,
  doctorId: null,
  hospitalId: null,
  discountAmount: null,
  totalAmount: null,
  items,
  ...fields,
})
const known = { prices: new Map([['cbc', 350]]), packageTests: new Map([['full', ['CBC', 'TSH']]]) }
const bill = (items: BillItem[] = [], status: Bill['status'] = 'created'): Bill => ({
  ...makeBill(source(items), {}, known, origin),
  items,
  status,
  patientId: null,
})

describe('a bill', () => {
  test("has the price that was agreed, or else the catalogue's, and keeps what it was made of", () => {
    const made = makeBill(source([item({ price: 300 }), item()]), {}, known, origin)
    expect(made.items.map(({ price }) => price)).toEqual([300, 350])
    expect(made).toMatchObject({ integratorId: 'CRM-1', status: 'created', version: 1, totalAmount: 650 })
  })

  test('sums in hundredths, without drift', () => {
    const made = makeBill(source([item({ price: 0.1 }), item({ price: 0.2 })]), {}, known, origin)
    expect(made.totalAmount).toBe(0.3)
  })

  test('takes what staff say over what is billed', () => {
    const terms = { contact: '9876543210', discountAmount: 50 }
    const made = makeBill(source([item()], { contact: '1', discountAmount: 10 }), terms, known, origin)
    expect(made).toMatchObject({ contact: '9876543210', discountAmount: 50, totalAmount: 300 })
  })

  test('is refused when the discount exceeds its items, and at the first paisa over what the database holds', () => {
    const of = (price: number, discountAmount: number | null) => () =>
      makeBill(source([item({ price })], { discountAmount }), {}, known, origin).totalAmount
    expect(of(100, 100)()).toBe(0)
    expect(of(100, 100.01)).toThrow('discountAmount must not be more than the items cost')
    expect(of(9_999_999_999.99, null)()).toBe(9_999_999_999.99)
    expect(of(10_000_000_000, null)).toThrow('totalAmount is required')
  })
})

test.each([
  ['createReport', 'created', 'created'],
  ['createReport', 'completed', undefined],
  ['deleteBill', 'created', 'deleted'],
  ['deleteBill', 'completed', undefined],
  ['deleteBill', 'deleted', undefined],
  ['sendBill', 'completed', 'completed'],
  ['sendBill', 'deleted', undefined],
] as const)('%s of a bill that is %s: %s', (action, status, next) => {
  const call = () => nextBillStatus(action, bill([], status))
  if (next) expect(call()).toBe(next)
  else expect(call).toThrow(`the bill is ${status}`)
})

test.each([
  ['no report', [item()], [], false],
  ['an item without a report', [item(), item({ reportId: 'a' })], [{ id: 'a', status: 'signed_off' }], false],
  ['an item whose report is a draft', [item({ reportId: 'a' })], [{ id: 'a', status: 'draft' }], false],
  ['all of its items signed off', [item({ reportId: 'a' })], [{ id: 'a', status: 'signed_off' }], true],
  ['a further draft', [], [{ id: 'a', status: 'signed_off' }, { id: 'b', status: 'draft' }], false], // prettier-ignore
  ['no items and one report', [], [{ id: 'a', status: 'signed_off' }], true],
] as const)('a bill with %s is reported: %4$s', (_, items, reports, reported) => {
  expect(isReported(bill([...items]), [...reports])).toBe(reported)
})

test('a report lists each test once, those of a package by name', () => {
  expect(reportTestsOf([item(), item({ kind: 'package', name: 'Full', tests: ['CBC', 'TSH'] })])).toEqual([
    'CBC',
    'TSH',
  ])
})
