/**
 * What staff do with reports: under the lock of their bill, with the event, in the caller's transaction.
 */
import type { BillingCall, FileDiscardingCall } from '../billing/bill-actions.ts'
import { completeWhenReported } from '../billing/bill-actions.ts'
import { nextBillStatus, reportTestsOf, type Bill } from '../billing/bill-rules.ts'
import { lockBill, updateBill, updateReportOfItems } from '../billing/bills-repository.ts'
import { findLab } from '../catalogue/labs-repository.ts'
import { listErasedRecords } from '../erasure/erasures-repository.ts'
import { conflict, notFound } from '../errors.ts'
import { recordEvent } from '../events/events-repository.ts'
import { reportCompleted } from '../events/report-payloads.ts'
import { newId } from '../ids.ts'
import {
  deleteReportFile,
  findBillReport,
  insertBillReport,
  insertReportFile,
  updateBillReport,
} from './bill-reports-repository.ts'
import type { PublishedLinks } from '../signed-link.ts'
import {
  itemAt,
  positionsToReport,
  requireItems,
  requireReportAction,
  type BillReport,
  type ReportAction,
} from './report-rules.ts'
import type { StoredFile } from './report-store.ts'

/** @throws 400 for an unknown item, 404, 409 */
export async function createReport(
  call: BillingCall,
  billId: string,
  items: number[] | undefined,
): Promise<BillReport> {
  const { trx, now } = call
  const bill = await lockBill(trx, call.accountId, billId)
  if (!bill) throw notFound('bill not found')
  requireItems(bill, items)
  nextBillStatus('createReport', bill)
  await requireKept(call, bill)
  const positions = positionsToReport(bill, items)
  const report: BillReport = {
    id: newId(now.getTime()),
    accountId: bill.accountId,
    labId: bill.labId,
    billId: bill.id,
    patientId: bill.patientId,
    version: 1,
    status: 'draft',
    fileId: null,
    amended: false,
    reportDate: now,
    tests: reportTestsOf(positions.map((position) => itemAt(bill, position))),
    createdAt: now,
  }
  await insertBillReport(trx, report)
  await updateReportOfItems(trx, bill.id, positions, report.id)
  // Its items say from now on which report they are in.
  if (positions.length > 0) await updateBill(trx, { ...bill, version: bill.version + 1 }, now)
  return report
}

/**
 * Locks the report's bill, and with it the report.
 * @throws 404, 409
 */
export async function claimReport(
  { trx, accountId }: BillingCall,
  reportId: string,
  action: ReportAction,
): Promise<{ report: BillReport; bill: Bill }> {
  const seen = await findBillReport(trx, accountId, reportId)
  const bill = seen && (await lockBill(trx, accountId, seen.billId))
  // Again, under the lock.
  const report = bill && (await findBillReport(trx, accountId, reportId))
  if (!report) throw notFound('report not found')
  await requireKept({ trx, accountId }, bill)
  requireReportAction(action, report)
  return { report, bill }
}

/**
 * For a locked bill: the file of an upload that was under way while its patient was erased must not be kept.
 * @throws 409
 */
async function requireKept({ trx, accountId }: Omit<BillingCall, 'now'>, bill: Bill): Promise<void> {
  if (!(await listErasedRecords(trx, accountId, [bill.id])).has(bill.id)) return
  throw conflict('the patient of this bill has been erased: no report of it is kept', 'erased')
}

/** Gives a draft its file, or another one. @throws 404, 409 */
export async function setReportFile(call: FileDiscardingCall, reportId: string, file: StoredFile): Promise<BillReport> {
  const { trx, now } = call
  const { report } = await claimReport(call, reportId, 'uploadReport')
  const changed: BillReport = { ...report, version: report.version + 1, fileId: file.id }
  await insertReportFile(trx, { ...file, accountId: report.accountId, reportId, createdAt: now })
  await updateBillReport(trx, changed, now)
  if (report.fileId !== null) {
    await deleteReportFile(trx, report.accountId, report.fileId)
    call.discardedFiles.push(report.fileId)
  }
  return changed
}

/** From now on the patient sees it. With the last report the bill is complete. @throws 404, 409 */
export async function signOffReport(call: BillingCall, reportId: string, links: PublishedLinks): Promise<BillReport> {
  const { report, bill } = await claimReport(call, reportId, 'signOffReport')
  const { now } = call
  const signedOff: BillReport = { ...report, version: report.version + 1, status: 'signed_off', reportDate: now }
  await publish(call, signedOff, bill, links)
  await completeWhenReported(call, bill)
  return signedOff
}

/** Replaces the file of a report that is signed off; the one before stays in the store. @throws 404, 409 */
export async function amendReport(
  call: BillingCall,
  reportId: string,
  file: StoredFile,
  links: PublishedLinks,
): Promise<BillReport> {
  const { trx, now } = call
  const { report, bill } = await claimReport(call, reportId, 'amendReport')
  const version = report.version + 1
  const amended: BillReport = { ...report, version, fileId: file.id, amended: true, reportDate: now }
  await insertReportFile(trx, { ...file, accountId: report.accountId, reportId, createdAt: now })
  await publish(call, amended, bill, links)
  return amended
}

async function publish(call: BillingCall, report: BillReport, bill: Bill, links: PublishedLinks): Promise<void> {
  const { trx, accountId, now } = call
  const lab = await findLab(trx, accountId, bill.labId)
  const surroundings = { bill, labName: lab!.name, reportUrl: links.report(report.id, now) }
  await updateBillReport(trx, report, now)
  await recordEvent(trx, reportCompleted(newId(now.getTime()), now, report, surroundings))
}
