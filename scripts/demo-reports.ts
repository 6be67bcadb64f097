/**
 * The files of the demo reports: small PDFs made here, so that a link in the demo leads to something.
 */
import { existsSync, mkdirSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DEMO_ACCOUNTS, DEMO_PATIENT_NAME } from '../db/seeds/demo-catalogue.ts'
import { textPdf } from '../src/text-pdf.ts'
import { reportFolder } from '../src/reports/report-store.ts'

export const DEMO_REPORT_IDS = Object.values(DEMO_ACCOUNTS).flatMap(({ labs }) =>
  labs.flatMap(({ reports }) => reports.map(({ id }) => id)),
)

/**
 * Writes those that are not there, aside and renamed: a reader sees no file or a whole one.
 * @param ids of the reports that there are
 */
export function writeDemoReports(dataDir: string, ids: ReadonlySet<string>): void {
  const folder = reportFolder(dataDir)
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  for (const { labs } of Object.values(DEMO_ACCOUNTS)) {
    for (const { name, reports } of labs) {
      for (const { id, tests } of reports) {
        const file = join(folder, `${id}.pdf`)
        if (!ids.has(id) || existsSync(file)) continue
        const draft = `${file}.${process.pid}`
        writeFileSync(draft, textPdf([name, `Report for ${DEMO_PATIENT_NAME}`, ...tests]), { mode: 0o600 })
        renameSync(draft, file)
      }
    }
  }
}
