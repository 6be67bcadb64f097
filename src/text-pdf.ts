/**
 * Plain text as a PDF: A4 pages, one font of even width, so that columns stay columns. Source: ISO 32000-1, 7.5. Pure.
 */
const LINES_PER_PAGE = 52
/** What fits beside each other. */
export const PDF_COLUMNS = 80

/**
 * @param lines what Latin-1 does not have is shown as a question mark; what is too long leaves the page
 * @returns the smallest file that readers open
 */
export function textPdf(lines: string[]): Buffer {
  const pages = Array.from({ length: Math.max(1, Math.ceil(lines.length / LINES_PER_PAGE)) }, (_, page) =>
    lines.slice(page * LINES_PER_PAGE, (page + 1) * LINES_PER_PAGE),
  )
  // Objects 1 to 3 are there once; each page has two more, itself and what stands on it.
  const kids = pages.map((_, page) => `${4 + 2 * page} 0 R`)
  const objects = [
    '<< /Type /Catalog /Pages 2 0 R >>',
    `<< /Type /Pages /Kids [${kids.join(' ')}] /Count ${pages.length} >>`,
    '<< /Type /Font /Subtype /Type1 /BaseFont /Courier /Encoding /WinAnsiEncoding >>',
    ...pages.flatMap((shown, page) => [pageObject(5 + 2 * page), contentObject(shown)]),
  ]
  let text = '%PDF-1.4\n'
  const offsets = objects.map((object, index) => {
    const offset = text.length
    text += `${index + 1} 0 obj\n${object}\nendobj\n`
    return offset
  })
  const table = offsets.map((offset) => `${String(offset).padStart(10, '0')} 00000 n \n`).join('')
  const start = text.length
  text += `xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${table}`
  text += `trailer\n<< /Size ${objects.length + 1} /Root 1 0 R >>\nstartxref\n${start}\n%%EOF\n`
  return Buffer.from(text, 'latin1')
}

function pageObject(contents: number): string {
  const resources = '<< /Font << /F1 3 0 R >> >>'
  return `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents ${contents} 0 R /Resources ${resources} >>`
}

function contentObject(lines: string[]): string {
  const shown = lines.map((line) => `(${latin1Of(line).replace(/[\\()]/g, '\\$&')}) Tj T*`).join(' ')
  const content = `BT /F1 10 Tf 14 TL 57 780 Td ${shown} ET`
  return `<< /Length ${content.length} >>\nstream\n${content}\nendstream`
}

function latin1Of(text: string): string {
  return text.replace(/[^\x20-\x7e\xa0-\xff]/gu, '?')
}
