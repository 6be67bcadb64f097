/**
 * The files of the demo reports: small PDFs made here, so that a link in the demo leads to something.
 */
import { existsSync, mkdirSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DEMO_ACCOUNTS, DEMO_PATIENT_NAME } from '../db/seeds/demo-catalogue.ts'
import { reportFolder } from '../src/patients/report-files.ts'

/** Writes those that are not there, aside and renamed: a reader sees no file or a whole one. */
export function writeDemoReports(dataDir: string): void {
  const folder = reportFolder(dataDir)
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  for (const { labs } of Object.values(DEMO_ACCOUNTS)) {
    for (const { name, reports } of labs) {
      for (const { id, tests } of reports) {
        const file = join(folder, `${id}.pdf`)
        if (existsSync(file)) continue
        const draft = `${file}.${process.pid}`
        writeFileSync(draft, onePagePdf([name, `Report for ${DEMO_PATIENT_NAME}`, ...tests]), { mode: 0o600 })
        renameSync(draft, file)
      }
    }
  }
}

/**
 * The smallest PDF that readers open: one page, one font, a line of text for each of `lines`. Source: ISO 32000-1, 7.5.
 * @param lines ASCII
 */
function onePagePdf(lines: string[]): Buffer {
  const shown = lines.map((line) => `(${line.replace(/[\\()]/g, '\\$&')}) Tj T*`).join(' ')
  const content = `BT /F1 14 Tf 20 TL 60 760 Td ${shown} ET`
  const objects = [
    '<< /Type /Catalog /Pages 2 0 R >>',
    '<< /Type /Pages /Kids [3 0 R] /Count 1 >>',
    '<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>',
    `<< /Length ${content.length} >>\nstream\n${content}\nendstream`,
    '<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>',
  ]
  let text = '%PDF-1.4\n'
  const offsets = objects.map((object, index) => {
    const offset = text.length
    text += `${index + 1} 0 obj\n${object}\nendobj\n`
    return offset
  })
  const table = offsets.map((offset) => `${String(offset).padStart(10, '0')} 00000 n \n`).join('')
  text += `xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${table}`
  const start = text.indexOf('xref\n')
  return Buffer.from(
    `${text}trailer\n<< /Size ${objects.length + 1} /Root 1 0 R >>\nstartxref\n${start}\n%%EOF\n`,
    'latin1',
  )
}
