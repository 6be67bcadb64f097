/**
 * Reports of bills, and which file each has. What patients see of them is in `reports-repository.ts`.
 */
import type { Knex } from 'knex'
import { isIdShaped } from '../ids.ts'
import type { BillReport, ReportState } from './report-rules.ts'
import type { KnownFiles } from './report-store.ts'

export async function insertBillReport(trx: Knex.Transaction, report: BillReport): Promise<void> {
  await trx('reports').insert({
    id: report.id,
    account_id: report.accountId,
    lab_id: report.labId,
    bill_id: report.billId,
    patient_id: report.patientId,
    version: report.version,
    status: report.status,
    report_date: report.reportDate,
    tests: JSON.stringify(report.tests),
    created_at: report.createdAt,
    updated_at: report.createdAt,
  })
}

/** Without a lock: a report is changed under its bill's lock only, and read again after that. */
export async function findBillReport(knex: Knex, accountId: string, reportId: string): Promise<BillReport | undefined> {
  if (!isIdShaped(reportId)) return undefined
  const row = await knex('reports').where({ account_id: accountId, id: reportId }).whereNotNull('bill_id').first()
  return row && toReport(row)
}

/** Call under the bill's lock. */
export async function updateBillReport(trx: Knex.Transaction, report: BillReport, now: Date): Promise<void> {
  await trx('reports').where({ account_id: report.accountId, id: report.id }).update({
    version: report.version,
    status: report.status,
    file_id: report.fileId,
    amended: report.amended,
    report_date: report.reportDate,
    updated_at: now,
  })
}

export async function listStatusesOfReports(
  trx: Knex.Transaction,
  accountId: string,
  billId: string,
): Promise<{ id: string; status: BillReport['status'] }[]> {
  return trx('reports').where({ account_id: accountId, bill_id: billId }).select('id', 'status')
}

/**
 * Drafts of a bill that is deleted. Call under the bill's lock.
 * @returns the ids of their files, whose rows are gone
 */
export async function discardDrafts(
  trx: Knex.Transaction,
  accountId: string,
  billId: string,
  now: Date,
): Promise<string[]> {
  const ids = await trx('reports').where({ account_id: accountId, bill_id: billId, status: 'draft' }).pluck('id')
  if (ids.length === 0) return []
  await trx('reports')
    .whereIn('id', ids)
    .update({ status: 'discarded', file_id: null, version: trx.raw('version + 1'), updated_at: now })
  const fileIds: string[] = await trx('report_files').whereIn('report_id', ids).pluck('id')
  await trx('report_files').whereIn('report_id', ids).delete()
  return fileIds
}

export interface ReportFilter {
  billId?: string | undefined
  labId?: string | undefined
  state?: ReportState | undefined
  after?: string | undefined
}

/** The oldest first. */
export async function listBillReports(
  knex: Knex,
  accountId: string,
  { billId, labId, state, after }: ReportFilter,
  limit: number,
): Promise<BillReport[]> {
  const query = knex('reports').where({ account_id: accountId }).whereNotNull('bill_id').orderBy('id').limit(limit)
  if (billId !== undefined) query.where({ bill_id: billId })
  if (labId !== undefined) query.where({ lab_id: labId })
  if (state === 'draft') query.where({ status: 'draft' }).whereNull('file_id')
  else if (state === 'uploaded') query.where({ status: 'draft' }).whereNotNull('file_id')
  else if (state !== undefined) query.where({ status: state })
  if (after !== undefined) query.where('id', '>', after)
  return (await query).map(toReport)
}

export interface ReportFile {
  id: string
  accountId: string
  reportId: string
  bytes: number
  sha256: Buffer
  createdAt: Date
}

/** Belongs in the transaction that makes it the report's file. */
export async function insertReportFile(trx: Knex.Transaction, file: ReportFile): Promise<void> {
  await trx('report_files').insert({
    id: file.id,
    account_id: file.accountId,
    report_id: file.reportId,
    bytes: file.bytes,
    sha256: file.sha256,
    created_at: file.createdAt,
  })
}

/** Of a draft's file that is replaced. */
export async function deleteReportFile(trx: Knex.Transaction, accountId: string, fileId: string): Promise<void> {
  await trx('report_files').where({ account_id: accountId, id: fileId }).delete()
}

/** Under which id a report's file is stored; for whoever has a signed link, which names no account. */
export async function findStoredFileId(knex: Knex, reportId: string): Promise<string | undefined> {
  const row = await knex('reports').where({ id: reportId }).first('file_id', 'bill_id')
  // Reports from before have no bill, and their file the report's own id.
  return row && (row.file_id ?? (row.bill_id === null ? reportId : undefined))
}

/** For the sweep, which knows no account. */
export async function listKnownFiles(knex: Knex, fileIds: string[]): Promise<KnownFiles> {
  const uploaded = await knex('report_files').whereIn('id', fileIds).pluck('id')
  const demo = await knex('reports').whereIn('id', fileIds).whereNull('bill_id').pluck('id')
  return { uploaded: new Set(uploaded), demo: new Set(demo) }
}

function toReport(row: Record<string, any>): BillReport {
  return {
    id: row.id,
    accountId: row.account_id,
    labId: row.lab_id,
    billId: row.bill_id,
    patientId: row.patient_id,
    version: row.version,
    status: row.status,
    fileId: row.file_id,
    amended: Boolean(row.amended),
    reportDate: row.report_date,
    // MariaDB answers JSON as text, MySQL as a value.
    tests: typeof row.tests === 'string' ? JSON.parse(row.tests) : row.tests,
    createdAt: row.created_at,
  }
}
