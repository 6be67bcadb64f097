/**
 * A CSV file as the rows of an import, and the lines of it that are no rows.
 */
import { CsvError, parse } from 'csv-parse/sync'
import { Refusal } from './command-faults.ts'

export type ImportKind = 'tests' | 'packages' | 'party_prices' | 'rate_list_prices'

export interface ImportRow {
  line: number
  cells: Record<string, string>
}

export interface RefusedLine {
  line: number
  fault: string
}

export interface CatalogueFile {
  rows: ImportRow[]
  refused: RefusedLine[]
}

/** What the service takes in one string. */
const LONGEST_CELL = 4096

const COLUMNS: Record<ImportKind, { required: string[]; optional: string[] }> = {
  tests: { required: ['code', 'name', 'cost'], optional: ['serviceID'] },
  packages: { required: ['code', 'name', 'total', 'tests'], optional: [] },
  party_prices: { required: ['partyId', 'price'], optional: ['test', 'package'] },
  rate_list_prices: { required: ['rateListType', 'price'], optional: ['test', 'package'] },
}

/** @throws Refusal where the file as a whole can't be read: not UTF-8, or a header without the columns of its kind */
export function readCatalogueFile(bytes: Buffer, kind: ImportKind, delimiter: string): CatalogueFile {
  const [header, ...records] = readRecords(decode(bytes), delimiter)
  if (!header) throw new Refusal('the file has no header')
  const columns = readHeader(header.cells ?? [], kind)
  const rows: ImportRow[] = []
  const refused: RefusedLine[] = []
  for (const { line, cells } of records) {
    const fault = faultOf(cells, columns)
    if (fault !== undefined) refused.push({ line, fault })
    else rows.push({ line, cells: Object.fromEntries(columns.map((column, index) => [column, cells![index]!])) })
  }
  return { rows, refused }
}

interface CsvRecord {
  /** Of its end, where a cell has line breaks. */
  line: number
  /** undefined: it is not valid CSV. */
  cells: string[] | undefined
}

/**
 * The file as a whole, or, where a quote is out of place, line by line: then each line that is at fault is found, and none
 * after it is lost. No cell of an import may have line breaks anyhow.
 */
function readRecords(text: string, delimiter: string): CsvRecord[] {
  const options = { delimiter, record_delimiter: '\n', relax_column_count: true, skip_empty_lines: true }
  try {
    const records = parse(text, { ...options, info: true }) as unknown as {
      record: string[]
      info: { lines: number }
    }[]
    return records.map(({ record, info }) => ({ line: info.lines, cells: record }))
  } catch (error) {
    if (!(error instanceof CsvError)) throw error
  }
  return text.split('\n').flatMap((textOfLine, index): CsvRecord[] => {
    const line = index + 1
    try {
      return parse(textOfLine, options).map((cells) => ({ line, cells }))
    } catch (error) {
      if (!(error instanceof CsvError)) throw error
      return [{ line, cells: undefined }]
    }
  })
}

function decode(bytes: Buffer): string {
  try {
    // Without the mark at the beginning, which spreadsheets write, and with one kind of line breaks: files have several, and then
    // lines are neither told apart nor counted.
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes).replace(/\r\n?/g, '\n')
  } catch {
    throw new Refusal('the file is not UTF-8: save it as such')
  }
}

/** Names count in upper or lower case. */
function readHeader(cells: string[], kind: ImportKind): string[] {
  const { required, optional } = COLUMNS[kind]
  const known = [...required, ...optional]
  const columns = cells.map((cell) => {
    const column = known.find((name) => name.toLowerCase() === cell.trim().toLowerCase())
    if (column === undefined)
      throw new Refusal(`line 1: unknown column "${cell.trim()}", known are ${known.join(', ')}`)
    return column
  })
  const missing = required.filter((name) => !columns.includes(name))
  if (missing.length > 0) throw new Refusal(`line 1: the column ${missing.join(' and ')} is missing`)
  if (new Set(columns).size < columns.length) throw new Refusal('line 1: a column is there twice')
  return columns
}

function faultOf(record: string[] | undefined, columns: string[]): string | undefined {
  if (!record) return 'is not valid CSV: see its quotes'
  if (record.length !== columns.length) return `has ${record.length} cells, the header has ${columns.length}`
  const long = columns.find((_, index) => record[index]!.length > LONGEST_CELL)
  return long === undefined ? undefined : `${long} must have at most ${LONGEST_CELL} characters`
}
