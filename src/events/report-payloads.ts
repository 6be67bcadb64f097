/**
 * What is told of reports: the only constructor of this payload, typed from the contract. Never results, never the file.
 */
import type { Bill } from '../billing/bill-rules.ts'
import type { components } from '../generated/client.ts'
import type { BillReport } from '../reports/report-rules.ts'
import { partiesOf, recorded } from './event-body.ts'
import type { RecordedEvent } from './event-types.ts'

type Schemas = components['schemas']

/** What a report's payload takes from elsewhere. */
export interface ReportSurroundings {
  /** The parties and the integrator's id are the bill's. */
  bill: Bill
  labName: string
  /** A signed link that expires. */
  reportUrl: string
}

/** Signed off, or amended after that. */
export function reportCompleted(
  eventId: string,
  at: Date,
  report: BillReport,
  { bill, labName, reportUrl }: ReportSurroundings,
): RecordedEvent {
  const subject = { ...bill, id: report.id }
  return recorded('report.completed', eventId, at, subject, (cutter): Omit<Schemas['ReportData'], 'truncated'> => {
    const tests = cutter.list(report.tests)
    return {
      report: {
        reportId: report.id,
        version: report.version,
        billId: bill.id,
        status: 'completed',
        amended: report.amended,
        patientName: cutter.name(bill.patientName),
        labName: cutter.name(labName),
        tests: tests.items.map((name) => cutter.name(name)),
        ...(tests.count === undefined ? {} : { testsCount: tests.count }),
        reportDate: report.reportDate.toISOString(),
        reportUrl,
        ...partiesOf(bill),
      },
    }
  })
}
