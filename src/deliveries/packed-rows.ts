/**
 * Rows for one INSERT as a text of fixed-width fields, which the server cuts up: no list of values to escape on this side, and
 * none to parse on the other. Of what recording a delivery costs, that is about a twelfth.
 */
import type { Statement } from '../../db/batch.ts'

/** Columns with their widths, in the order of the text. All are ASCII; numbers are padded with zeros. */
const FIELDS = {
  webhookId: 26,
  eventId: 26,
  // `delivered`, `exhausted`, `discarded`: all nine letters long.
  status: 9,
  attempts: 5,
  seq: 16,
  startedAt: 23,
  durationMs: 10,
  class: 20,
  httpStatus: 3,
  /** Where the row's bytes begin: the error's, then the answer's. */
  bytesAt: 8,
  errorLength: 4,
  answerLength: 4,
} as const

type Field = keyof typeof FIELDS

const ROW_WIDTH = Object.values(FIELDS).reduce<number>((sum, width) => sum + width, 0)
/** 8 x 8 x 8 rows of numbers. */
export const MOST_ROWS = 512
const DIGITS = `(SELECT 0 AS d ${[1, 2, 3, 4, 5, 6, 7].map((d) => `UNION ALL SELECT ${d}`).join(' ')})`
const NUMBERS = `(SELECT 64 * a.d + 8 * b.d + c.d AS n FROM ${DIGITS} a JOIN ${DIGITS} b JOIN ${DIGITS} c)`

function cut(field: Field): string {
  let at = 1
  for (const [name, width] of Object.entries(FIELDS)) {
    if (name === field) return `SUBSTR(r.fields, x.n * ${ROW_WIDTH} + ${at}, ${width})`
    at += width
  }
  throw new Error(`no field ${field}`)
}

const BYTES_AT = `CAST(${cut('bytesAt')} AS UNSIGNED)`
const ERROR_LENGTH = `CAST(${cut('errorLength')} AS UNSIGNED)`
const ERROR = `CONVERT(SUBSTR(r.bytes, ${BYTES_AT} + 1, ${ERROR_LENGTH}) USING utf8mb4)`
const ANSWER = `SUBSTR(r.bytes, ${BYTES_AT} + ${ERROR_LENGTH} + 1, CAST(${cut('answerLength')} AS UNSIGNED))`
const NO_BYTES = `'${number(0, FIELDS.errorLength)}'`

/** The columns of `deliveries`, each with what it is cut from. */
const COLUMNS: [column: string, expression: string][] = [
  ['webhook_id', cut('webhookId')],
  ['event_id', cut('eventId')],
  ['status', cut('status')],
  ['attempts', cut('attempts')],
  ['ended_at', 'r.ended_at'],
  ['seq', cut('seq')],
  ['started_at', cut('startedAt')],
  ['duration_ms', cut('durationMs')],
  ['class', `RTRIM(${cut('class')})`],
  ['http_status', `NULLIF(${cut('httpStatus')}, '000')`],
  ['error', `CASE WHEN ${cut('errorLength')} = ${NO_BYTES} THEN NULL ELSE ${ERROR} END`],
  ['answer', `CASE WHEN ${cut('answerLength')} = ${NO_BYTES} THEN NULL ELSE ${ANSWER} END`],
]

/** A copy that was sent again by hand has ended before. */
const INSERT = `
  INSERT INTO deliveries (${COLUMNS.map(([column]) => column).join(', ')})
  SELECT ${COLUMNS.map(([, expression]) => expression).join(',\n    ')}
  FROM (SELECT CONVERT(? USING ascii) AS fields, ? AS bytes, CAST(? AS DATETIME(3)) AS ended_at) r
  JOIN ${NUMBERS} x
  WHERE x.n < ?
  ON DUPLICATE KEY UPDATE ${COLUMNS.slice(2)
    .map(([column]) => `${column} = VALUES(${column})`)
    .join(', ')}`

export interface EndedRow {
  webhookId: string
  eventId: string
  status: 'delivered' | 'exhausted' | 'discarded'
  attempts: number
  seq: number
  startedAt: Date
  durationMs: number
  class: string
  httpStatus: number | null
  error: string | null
  answer: Buffer | null
}

/**
 * @param rows ended deliveries with their last attempts
 * @param endedAt the same for all
 * @throws RangeError when a value is wider than its field: a row that is cut off wrongly would be another one
 */
export function endedStatements(rows: EndedRow[], endedAt: Date): Statement[] {
  const statements: Statement[] = []
  for (let from = 0; from < rows.length; from += MOST_ROWS) {
    const part = rows.slice(from, from + MOST_ROWS)
    statements.push({ sql: INSERT, values: [...pack(part), endedAt, part.length] })
  }
  return statements
}

function pack(rows: EndedRow[]): [fields: string, bytes: Buffer] {
  const kept: Buffer[] = []
  let keptBytes = 0
  let fields = ''
  for (const [n, row] of rows.entries()) {
    const error = row.error === null ? undefined : Buffer.from(row.error)
    fields +=
      row.webhookId +
      row.eventId +
      row.status +
      number(row.attempts, FIELDS.attempts) +
      number(row.seq, FIELDS.seq) +
      time(row.startedAt) +
      number(Math.round(row.durationMs), FIELDS.durationMs) +
      row.class.padEnd(FIELDS.class) +
      number(row.httpStatus ?? 0, FIELDS.httpStatus) +
      number(keptBytes, FIELDS.bytesAt) +
      number(error?.length ?? 0, FIELDS.errorLength) +
      number(row.answer?.length ?? 0, FIELDS.answerLength)
    if (fields.length !== (n + 1) * ROW_WIDTH) throw new RangeError('a value is wider than its field')
    for (const bytes of [error, row.answer]) {
      if (!bytes) continue
      kept.push(bytes)
      keptBytes += bytes.length
    }
  }
  return [fields, kept.length > 0 ? Buffer.concat(kept) : EMPTY]
}

const EMPTY = Buffer.alloc(0)

function number(value: number, width: number): string {
  return String(value).padStart(width, '0')
}

/** As the server takes it, in UTC. */
function time(at: Date): string {
  const text = at.toISOString()
  return `${text.slice(0, 10)} ${text.slice(11, 23)}`
}
