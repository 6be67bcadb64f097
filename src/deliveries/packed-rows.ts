/**
 * Rows for one statement as a text of fixed-width fields, which the server cuts up: no list of values to escape on this side, and
 * none to parse on the other. Of what recording a delivery costs, that is about a sixth.
 */
import type { Statement } from '../../db/batch.ts'

/** Columns with their widths, in the order of the text. All are ASCII; numbers are padded with zeros. */
const COMMON = {
  webhookId: 26,
  eventId: 26,
  attempts: 5,
  seq: 16,
  startedAt: 23,
  durationMs: 10,
  httpStatus: 3,
} as const

const SUCCESS = 'ok'

/** The same for all successes. */
const OUTCOME = {
  // `delivered`, `exhausted`, `discarded`: all nine letters long.
  status: 9,
  class: 20,
} as const

/** Where the row's bytes begin, the error's and then the answer's: not for an answer without a body. */
const BYTES = { bytesAt: 8, errorLength: 4, answerLength: 4 } as const

type Field = keyof typeof COMMON | keyof typeof OUTCOME | keyof typeof BYTES

/** 8 x 8 x 8 rows of numbers. */
export const MOST_ROWS = 512
const DIGITS = `(SELECT 0 AS d ${[1, 2, 3, 4, 5, 6, 7].map((d) => `UNION ALL SELECT ${d}`).join(' ')})`
const NUMBERS = `(SELECT 64 * a.d + 8 * b.d + c.d AS n FROM ${DIGITS} a JOIN ${DIGITS} b JOIN ${DIGITS} c)`

/** Rows that need the same fields go in one statement: what is cut for nothing costs the server as much as what is cut for use. */
class Shape {
  readonly rowWidth: number
  readonly insert: string
  readonly #fields: [Field, number][]
  readonly #success: boolean
  readonly #bytes: boolean

  constructor(success: boolean, bytes: boolean) {
    this.#success = success
    this.#bytes = bytes
    const widths = { ...COMMON, ...(success ? {} : OUTCOME), ...(bytes ? BYTES : {}) }
    this.#fields = Object.entries(widths) as [Field, number][]
    this.rowWidth = this.#fields.reduce((sum, [, width]) => sum + width, 0)
    this.insert = this.#insert()
  }

  /** A copy that was sent again by hand has ended before. */
  #insert(): string {
    const columns = this.#columns()
    return `
  INSERT INTO deliveries (${columns.map(([column]) => column).join(', ')})
  SELECT ${columns.map(([, expression]) => expression).join(',\n    ')}
  FROM (SELECT CONVERT(? USING ascii) AS fields, ? AS bytes, CAST(? AS DATETIME(3)) AS ended_at) r
  JOIN ${NUMBERS} x
  WHERE x.n < ?
  ON DUPLICATE KEY UPDATE ${columns
    .slice(2)
    .map(([column]) => `${column} = VALUES(${column})`)
    .join(', ')}`
  }

  /** The columns of `deliveries`, each with what it is cut from. */
  #columns(): [column: string, expression: string][] {
    return [
      ['webhook_id', this.#cut('webhookId')],
      ['event_id', this.#cut('eventId')],
      ['status', this.#success ? "'delivered'" : this.#cut('status')],
      ['attempts', this.#cut('attempts')],
      ['ended_at', 'r.ended_at'],
      ['seq', this.#cut('seq')],
      ['started_at', this.#cut('startedAt')],
      ['duration_ms', this.#cut('durationMs')],
      ['class', this.#success ? `'${SUCCESS}'` : `RTRIM(${this.#cut('class')})`],
      ['http_status', `NULLIF(${this.#cut('httpStatus')}, '000')`],
      ...this.#bytesColumns(),
    ]
  }

  #bytesColumns(): [column: string, expression: string][] {
    if (!this.#bytes) {
      return [
        ['error', 'NULL'],
        ['answer', 'NULL'],
      ]
    }
    const none = `'${'0'.repeat(BYTES.errorLength)}'`
    const bytesAt = `CAST(${this.#cut('bytesAt')} AS UNSIGNED)`
    const errorLength = `CAST(${this.#cut('errorLength')} AS UNSIGNED)`
    const error = `CONVERT(SUBSTR(r.bytes, ${bytesAt} + 1, ${errorLength}) USING utf8mb4)`
    const answer = `SUBSTR(r.bytes, ${bytesAt} + ${errorLength} + 1, CAST(${this.#cut('answerLength')} AS UNSIGNED))`
    return [
      ['error', `CASE WHEN ${this.#cut('errorLength')} = ${none} THEN NULL ELSE ${error} END`],
      ['answer', `CASE WHEN ${this.#cut('answerLength')} = ${none} THEN NULL ELSE ${answer} END`],
    ]
  }

  #cut(field: Field): string {
    let at = 1
    for (const [name, width] of this.#fields) {
      if (name === field) return `SUBSTR(r.fields, x.n * ${this.rowWidth} + ${at}, ${width})`
      at += width
    }
    throw new Error(`no field ${field}`)
  }

  pack(rows: EndedRow[]): [fields: string, bytes: Buffer] {
    const kept: Buffer[] = []
    let keptBytes = 0
    const fields = new FixedText(rows.length * this.rowWidth)
    for (let n = 0; n < rows.length; n++) {
      const row = rows[n]!
      fields.text(row.webhookId, COMMON.webhookId)
      fields.text(row.eventId, COMMON.eventId)
      fields.number(row.attempts, COMMON.attempts)
      fields.number(row.seq, COMMON.seq)
      fields.text(time(row.startedAt), COMMON.startedAt)
      fields.number(Math.round(row.durationMs), COMMON.durationMs)
      fields.number(row.httpStatus ?? 0, COMMON.httpStatus)
      if (!this.#success) {
        fields.text(row.status, OUTCOME.status)
        fields.text(row.class.padEnd(OUTCOME.class), OUTCOME.class)
      }
      if (this.#bytes) {
        const error = row.error === null ? undefined : Buffer.from(row.error)
        fields.number(keptBytes, BYTES.bytesAt)
        fields.number(error?.length ?? 0, BYTES.errorLength)
        fields.number(row.answer?.length ?? 0, BYTES.answerLength)
        for (const bytes of [error, row.answer]) {
          if (!bytes) continue
          kept.push(bytes)
          keptBytes += bytes.length
        }
      }
    }
    return [fields.end(), kept.length > 0 ? Buffer.concat(kept) : EMPTY]
  }
}

/** Digits and letters go into one piece of memory: a string for each would be most of what a batch leaves behind. */
class FixedText {
  readonly #bytes: Buffer
  #at = 0

  constructor(length: number) {
    if (memory.length < length) memory = Buffer.allocUnsafeSlow(2 * length)
    this.#bytes = memory
  }

  /** @throws RangeError when it is wider or narrower than its field */
  text(value: string, width: number): void {
    const at = this.#at
    if (value.length !== width) throw tooWide()
    for (let n = 0; n < width; n++) this.#bytes[at + n] = value.charCodeAt(n)
    this.#at = at + width
  }

  /**
   * @param value an integer, not below zero
   * @throws RangeError when it is wider than its field
   */
  number(value: number, width: number): void {
    this.#at += width
    let rest = value
    for (let at = this.#at - 1; at >= this.#at - width; at--) {
      const tenth = Math.floor(rest / 10)
      this.#bytes[at] = 48 + (rest - 10 * tenth)
      rest = tenth
    }
    if (rest !== 0) throw tooWide()
  }

  /** Only one is written at a time. */
  end(): string {
    return this.#bytes.toString('latin1', 0, this.#at)
  }
}

let memory = Buffer.alloc(0)

function tooWide(): RangeError {
  return new RangeError('a value is wider than its field')
}

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

/** By whether the row is a success, and whether it has bytes. */
const SHAPES = [new Shape(false, false), new Shape(false, true), new Shape(true, false), new Shape(true, true)]

/**
 * @param rows ended deliveries with their last attempts
 * @param endedAt the same for all
 * @throws RangeError when a value is wider than its field: a row that is cut off wrongly would be another one
 */
export function endedStatements(rows: EndedRow[], endedAt: Date): Statement[] {
  const groups: EndedRow[][] = SHAPES.map(() => [])
  for (const row of rows) {
    const success = row.status === 'delivered' && row.class === SUCCESS
    const bytes = row.error !== null || row.answer !== null
    groups[(success ? 2 : 0) + (bytes ? 1 : 0)]!.push(row)
  }
  const statements: Statement[] = []
  for (const [index, group] of groups.entries()) {
    const shape = SHAPES[index]!
    for (let from = 0; from < group.length; from += MOST_ROWS) {
      const part = group.slice(from, from + MOST_ROWS)
      statements.push({ sql: shape.insert, values: [...shape.pack(part), endedAt, part.length] })
    }
  }
  return statements
}

const ID_WIDTH = COMMON.webhookId

/** @returns a list of as many ids to a row, for as many values: the text, and how many rows it has */
function idRows(columns: string[]): string {
  const cut = columns.map(
    (column, n) => `SUBSTR(r.ids, x.n * ${columns.length * ID_WIDTH} + ${n * ID_WIDTH + 1}, ${ID_WIDTH}) AS ${column}`,
  )
  return `(SELECT ${cut.join(', ')}
    FROM (SELECT CONVERT(? USING ascii) COLLATE ascii_bin AS ids) r JOIN ${NUMBERS} x WHERE x.n < ?)`
}

/**
 * Joined to the list, in this order: each row is one look-up in the unique key. MariaDB scans the whole table for a list of
 * row values, and takes 15 times as long for a chain of conditions. In the columns' own collation, without which the join finds
 * no key.
 */
const REMOVE = `
  DELETE q FROM ${idRows(['event_id', 'webhook_id'])} done
  STRAIGHT_JOIN delivery_queue q ON q.event_id = done.event_id AND q.webhook_id = done.webhook_id`

/**
 * Copies that wait no longer.
 * @throws RangeError when an id is not one
 */
export function removedStatements(copies: { webhookId: string; eventId: string }[]): Statement[] {
  return idStatements(
    REMOVE,
    copies.map(({ webhookId, eventId }) => eventId + webhookId),
    2 * ID_WIDTH,
  )
}

/**
 * For a plain list of ids both servers read the whole of a table that seems small, whatever index they are told to use, and so
 * wait for the rows of every transaction that is still open.
 */
const REMOVE_WAITING = `
  DELETE u FROM ${idRows(['event_id'])} routed
  STRAIGHT_JOIN unrouted_events u FORCE INDEX (PRIMARY) ON u.event_id = routed.event_id`

/**
 * Events that wait for their fan-out no longer.
 * @throws RangeError when an id is not one
 */
export function routedStatements(eventIds: string[]): Statement[] {
  return idStatements(REMOVE_WAITING, eventIds, ID_WIDTH)
}

function idStatements(sql: string, rows: string[], width: number): Statement[] {
  const statements: Statement[] = []
  for (let from = 0; from < rows.length; from += MOST_ROWS) {
    const part = rows.slice(from, from + MOST_ROWS)
    const ids = part.join('')
    if (ids.length !== part.length * width) throw new RangeError('an id is wider or narrower than its field')
    statements.push({ sql, values: [ids, part.length] })
  }
  return statements
}

const EMPTY = Buffer.alloc(0)

let lastAtMs = NaN
let lastText = ''

/** As the server takes it, in UTC. Of attempts that stand together many have begun in the same millisecond. */
function time(at: Date): string {
  if (at.getTime() !== lastAtMs) {
    lastAtMs = at.getTime()
    const text = at.toISOString()
    lastText = `${text.slice(0, 10)} ${text.slice(11, 23)}`
  }
  return lastText
}
