import { findLab } from '../catalogue/labs-repository.ts'
import { labForbidden } from '../errors.ts'
import type { HandlerDeps, PatientHandler } from '../handlers.ts'
import { reportLink } from '../signed-link.ts'
import { listReportsOfContact } from './reports-repository.ts'

interface ReportHandlers {
  listPatientReports: PatientHandler<'listPatientReports'>
}

export function reportHandlers({ database: { knex }, clock, keys, baseUrl }: HandlerDeps): ReportHandlers {
  return {
    async listPatientReports({ account, patient, query }) {
      // An inactive lab takes no more work, yet its patients keep their reports.
      const lab = await findLab(knex, account.id, query.labID)
      if (!lab) throw labForbidden('labID')
      const reports = await listReportsOfContact(knex, account.id, lab.id, patient.contact)
      const now = clock.now()
      return {
        status: 200,
        body: reports.map(({ id, reportDate, ...rest }) => ({
          _id: id,
          reportUrl: reportLink(keys, baseUrl(), id, now),
          reportDate: reportDate.toISOString(),
          ...rest,
        })),
      }
    },
  }
}
