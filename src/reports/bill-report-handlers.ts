/**
 * Reports as staff make, upload, sign off and amend them.
 */
import type { Knex } from 'knex'
import { findAccountFor } from '../auth/staff-access.ts'
import type { BillingCall, FileDiscardingCall } from '../billing/bill-actions.ts'
import { areIdsShaped } from '../crm/staff-lists.ts'
import { notFound } from '../errors.ts'
import type { components } from '../generated/operator.ts'
import { inKeyedTransaction, WITHOUT_KEY, type Idempotency } from '../idempotency/idempotency.ts'
import type { HandlerDeps, OperatorHandler } from '../handlers.ts'
import { cutPage, pageById } from '../paging.ts'
import { publishedLinks, reportLink } from '../signed-link.ts'
import { findBillReport, listBillReports } from './bill-reports-repository.ts'
import { amendReport, createReport, setReportFile, signOffReport } from './report-actions.ts'
import { removeDiscarded, type StoredFile } from './report-store.ts'
import { reportStateOf, type BillReport } from './report-rules.ts'

interface BillReportHandlers {
  createReport: OperatorHandler<'createReport'>
  listReports: OperatorHandler<'listReports'>
  getReport: OperatorHandler<'getReport'>
  uploadReport: OperatorHandler<'uploadReport'>
  signOffReport: OperatorHandler<'signOffReport'>
  amendReport: OperatorHandler<'amendReport'>
}

type ReportCall = Pick<Parameters<OperatorHandler<'signOffReport'>>[0], 'operator' | 'audit'> & {
  /** Of what makes one. */
  idempotency?: Idempotency
}

export function billReportHandlers({
  database,
  clock,
  hint,
  keys,
  baseUrl,
  reportStore,
}: HandlerDeps): BillReportHandlers {
  const { knex } = database

  function toReportRow(report: BillReport): components['schemas']['Report'] {
    const { id, version, labId, billId, patientId, amended, reportDate, tests, createdAt } = report
    return {
      reportId: id,
      version,
      labID: labId,
      billId,
      patientId,
      status: reportStateOf(report),
      amended,
      reportDate: reportDate.toISOString(),
      tests,
      reportUrl: report.fileId === null ? null : reportLink(keys, baseUrl(), id, clock.now()),
      createdAt: createdAt.toISOString(),
    }
  }

  /** One action on one report: with its events and who did it in one transaction. */
  async function act<Status extends 200 | 201>(
    { operator, audit, idempotency = WITHOUT_KEY }: ReportCall,
    accountId: string,
    status: Status,
    action: (call: FileDiscardingCall) => Promise<BillReport>,
    file?: StoredFile,
  ) {
    const account = await findAccountFor(knex, operator, 'staff', accountId)
    let discardedFiles: string[] = []
    const work = async (trx: Knex.Transaction) => {
      discardedFiles = []
      const changed = await action({ trx, accountId: account.id, now: clock.now(), discardedFiles })
      await audit.record(trx, account.id, { reportId: changed.id, billId: changed.billId })
      // As late as can be: what waited for the bill may have waited for long.
      if (file) await reportStore.requireKept(file.id)
      return { status, body: toReportRow(changed) }
    }
    const answer = await inKeyedTransaction(database, idempotency, work, {
      personRecordIdOf: ({ reportId }) => reportId,
    })
    hint()
    await removeDiscarded(reportStore, discardedFiles)
    return answer
  }

  return {
    async createReport({ path, body, ...call }) {
      return act(call, path.accountId, 201, (billing) => createReport(billing, path.billId, body.items))
    },

    async listReports({ path, query, operator }) {
      const { limit, afterId } = pageById(query)
      const account = await findAccountFor(knex, operator, 'staff', path.accountId)
      const { billId, labID: labId, status: state } = query
      const filter = { billId, labId, state, after: afterId }
      const isPossible = areIdsShaped(billId, labId)
      const rows = isPossible ? await listBillReports(knex, account.id, filter, limit + 1) : []
      const { shown, nextCursor } = cutPage(rows, limit, ({ id }) => [id])
      return { status: 200, body: { reports: shown.map(toReportRow), nextCursor } }
    },

    async getReport({ path, operator }) {
      const account = await findAccountFor(knex, operator, 'staff', path.accountId)
      const report = await findBillReport(knex, account.id, path.reportId)
      if (!report) throw notFound('report not found')
      return { status: 200, body: toReportRow(report) }
    },

    async uploadReport({ path, file, ...call }) {
      const action = (billing: FileDiscardingCall) => setReportFile(billing, path.reportId, file)
      return act(call, path.accountId, 200, action, file)
    },

    async signOffReport({ path, ...call }) {
      const action = (billing: BillingCall) => signOffReport(billing, path.reportId, publishedLinks(keys, baseUrl()))
      return act(call, path.accountId, 200, action)
    },

    async amendReport({ path, file, ...call }) {
      const action = (billing: BillingCall) =>
        amendReport(billing, path.reportId, file, publishedLinks(keys, baseUrl()))
      return act(call, path.accountId, 200, action, file)
    },
  }
}
