/**
 * Reports of a bill: what can be done with one, and which items of the bill it covers. Pure.
 */
import type { Bill, BillItem } from '../billing/bill-rules.ts'
import { badRequest } from '../errors.ts'
import { invalidState, nextState, type ActionTable } from '../state-rules.ts'

export interface BillReport {
  id: string
  accountId: string
  labId: string
  billId: string
  /** Null: no contact is known. */
  patientId: string | null
  /** Raised by each change. */
  version: number
  status: 'draft' | 'signed_off' | 'discarded'
  /** The current one; null: none was uploaded yet. */
  fileId: string | null
  /** Whether it was changed after it had been signed off. */
  amended: boolean
  /** When it was signed off; before that, when it was made. */
  reportDate: Date
  /** Names, as they stand in the report. */
  tests: string[]
  createdAt: Date
}

export type ReportState = 'draft' | 'uploaded' | 'signed_off' | 'discarded'
export type ReportAction = 'uploadReport' | 'signOffReport' | 'amendReport' | 'sendReport'

export const REPORT_ACTIONS: ActionTable<ReportState, ReportAction> = {
  uploadReport: { done: 'given a file', events: [], next: { draft: 'uploaded', uploaded: 'uploaded' } },
  signOffReport: { done: 'signed off', events: ['report.completed'], next: { uploaded: 'signed_off' } },
  amendReport: { done: 'amended', events: ['report.completed'], next: { signed_off: 'signed_off' } },
  sendReport: { done: 'sent', events: ['report.send'], next: { signed_off: 'signed_off' } },
}

export function reportStateOf({ status, fileId }: BillReport): ReportState {
  return status === 'draft' && fileId !== null ? 'uploaded' : status
}

/** @throws 409 */
export function requireReportAction(action: ReportAction, report: BillReport): void {
  nextState(REPORT_ACTIONS, 'report', action, reportStateOf(report))
}

/**
 * The positions of the items that a new report covers: those that are named, or else all that no report covers yet. A bill
 * without items has reports that cover none.
 * @param named numbers of items, counted from 1
 * @throws 400 for a number that the bill does not have, 409 where an item is in another report, or none is left
 */
export function positionsToReport(bill: Bill, named: number[] | undefined): number[] {
  if (named === undefined) {
    const open = bill.items.flatMap(({ reportId }, position) => (reportId === null ? [position] : []))
    if (open.length === 0 && bill.items.length > 0)
      throw invalidState(`the bill is ${bill.status}, and each of its items is in a report`)
    return open
  }
  const positions = [...new Set(named)].map((number) => number - 1)
  const taken = positions.find((position) => itemAt(bill, position).reportId !== null)
  if (taken !== undefined) {
    throw invalidState(`item ${taken + 1} is in the report ${itemAt(bill, taken).reportId} already`)
  }
  return positions
}

/** @throws 400 */
export function requireItems(bill: Bill, named: number[] = []): void {
  named.forEach((number, index) => {
    if (bill.items[number - 1]) return
    const fault = `must be at most ${bill.items.length}: the bill has no more items`
    throw badRequest(`items.${index} ${fault}`, 'unknown_item', `items.${index}`, fault)
  })
}

export function itemAt(bill: Bill, position: number): BillItem {
  return bill.items[position]!
}
