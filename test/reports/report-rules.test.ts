import { expect, test } from 'vitest'
import type { Bill } from '../../src/billing/bill-rules.ts'
import {
  positionsToReport,
  requireItems,
  reportStateOf,
  requireReportAction,
  type BillReport,
} from '../../src/reports/report-rules.ts'

const report = (status: BillReport['status'], fileId: string | null) => ({ status, fileId }) as BillReport
const bill = (...reportIds: (string | null)[]) => ({ status: 'partial', items: reportIds.map((reportId) => ({ reportId })) }) as unknown as Bill // prettier-ignore

test('a draft with a file is an uploaded one; what is signed off stays so', () => {
  expect(reportStateOf(report('draft', null))).toBe('draft')
  expect(reportStateOf(report('draft', 'f'))).toBe('uploaded')
  expect(reportStateOf(report('signed_off', 'f'))).toBe('signed_off')
})

test('nothing is signed off without a file, and nothing sent before it is signed off', () => {
  expect(() => requireReportAction('signOffReport', report('draft', null))).toThrow('the report is draft')
  expect(() => requireReportAction('sendReport', report('draft', 'f'))).toThrow('the report is uploaded')
  requireReportAction('signOffReport', report('draft', 'f'))
  requireReportAction('sendReport', report('signed_off', 'f'))
})

test('a report covers what is named, each item once, or else what no report covers yet', () => {
  expect(positionsToReport(bill(null, 'r1', null), undefined)).toEqual([0, 2])
  expect(positionsToReport(bill(null, null, null), [3, 1, 3])).toEqual([2, 0])
  expect(positionsToReport(bill(), undefined)).toEqual([])
})

test('an item that the bill does not have, or that is in a report already, is refused', () => {
  expect(() => requireItems(bill(null), [2])).toThrow(expect.objectContaining({ code: 'unknown_item' }))
  expect(() => requireItems(bill(null), undefined)).not.toThrow()
  expect(() => positionsToReport(bill(null, 'r1'), [1, 2])).toThrow('item 2 is in the report r1 already')
  expect(() => positionsToReport(bill('r1'), undefined)).toThrow('each of its items is in a report')
})
