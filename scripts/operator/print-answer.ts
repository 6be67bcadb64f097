/**
 * An answer as JSON, or as a table: a list with a line for each row, anything else with a line for each field.
 */
import { oneLine, withEscapedControls } from '../../src/one-line.ts'

const LONGEST_CELL = 60

export function printAnswer(answer: Record<string, unknown>, format: 'json' | 'table'): void {
  process.stdout.write(format === 'json' ? toJson(answer) : toTable(answer))
}

/** With every character that a terminal would follow escaped: it is the same JSON. */
export function toJson(answer: object): string {
  return `${withEscapedControls(JSON.stringify(answer, null, 2))}\n`
}

export function toTable(answer: Record<string, unknown>): string {
  const list = listOf(answer)
  if (!list) return toLines(Object.entries(answer).map(([name, value]) => [name, toCell(value)]))
  const [name, rows] = list as [string, Record<string, unknown>[]]
  const columns = [...new Set(rows.flatMap(Object.keys))]
  const note = answer.nextCursor ? `\nmore: --cursor ${String(answer.nextCursor)}, or --all\n` : ''
  if (rows.length === 0) return `no ${name}\n`
  return toLines([columns, ...rows.map((row) => columns.map((column) => toCell(row[column])))]) + note
}

/** The one list of rows. An empty one only where there is nothing besides: the answer's other fields would not be shown. */
function listOf(answer: Record<string, unknown>): [name: string, rows: unknown[]] | undefined {
  const lists = Object.entries(answer).filter(isListOfRows)
  const [list] = lists
  if (lists.length !== 1 || !list) return undefined
  const isAll = Object.keys(answer).every((name) => name === list[0] || name === 'nextCursor')
  return list[1].length > 0 || isAll ? list : undefined
}

function isListOfRows(entry: [name: string, value: unknown]): entry is [name: string, rows: unknown[]] {
  const [, value] = entry
  return Array.isArray(value) && value.every((row) => typeof row === 'object' && row !== null)
}

function toCell(value: unknown): string {
  if (value === undefined || value === null) return ''
  const text = oneLine(typeof value === 'string' ? value : JSON.stringify(value))
  return text.length > LONGEST_CELL ? `${text.slice(0, LONGEST_CELL - 1)}…` : text
}

function toLines(rows: string[][]): string {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => (row[column] ?? '').length)))
  return rows
    .map(
      (row) =>
        `${row
          .map((cell, column) => cell.padEnd(widths[column]!))
          .join('  ')
          .trimEnd()}\n`,
    )
    .join('')
}
