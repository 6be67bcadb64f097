/**
 * Rows of ended deliveries as the literals of one statement. What is the same for most is not in it: what the server need not parse
 * or store costs neither side anything. A text that the server cuts up instead costs as much for hundreds of rows, and twice as
 * much for the few that a quiet service has.
 */
import { escape } from 'mysql2'
import type { Statement } from '../../db/batch.ts'

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

const ID_WIDTH = 26
/** Left out where they are what the table takes them for: delivered by the first attempt. */
const OUTCOME = ['status', 'attempts']
const COMMON = ['ended_at', 'seq', 'started_at', 'duration_ms', 'class', 'http_status']
const BYTES = ['error', 'answer']

/** A copy that was sent again by hand has ended before: then its row is written over, also with what this one does not have. */
function insertOf(columns: string[]): { before: string; after: string } {
  // Of one that is left out it is the value that the table takes for it.
  const written = [...OUTCOME, ...COMMON, ...BYTES].map((column) => `${column} = VALUES(${column})`)
  return {
    before: `INSERT INTO deliveries (webhook_id, event_id, ${columns.join(', ')}) VALUES `,
    after: ` ON DUPLICATE KEY UPDATE ${written.join(', ')}`,
  }
}

const FIRST_TRY = insertOf(COMMON)
const BARE = insertOf([...COMMON, ...OUTCOME])
const WITH_BYTES = insertOf([...COMMON, ...OUTCOME, ...BYTES])

/**
 * @param rows ended deliveries with their last attempts
 * @param endedAt the same for all
 * @throws RangeError when an id is not one: the server would take a shorter one for another
 */
export function endedStatements(rows: EndedRow[], endedAt: Date): Statement[] {
  const ended = timeDigits(endedAt)
  const firstTry: string[] = []
  const bare: string[] = []
  const withBytes: string[] = []
  for (const row of rows) {
    const { status, attempts, error } = row
    const common = commonText(row, ended)
    // An answer without a body is none.
    const answer = row.answer?.length ? row.answer : null
    if (error !== null || answer !== null) {
      withBytes.push(`(${common},${escape(status)},${attempts},${escape(error)},${escape(answer)})`)
    } else if (status === 'delivered' && attempts === 1) firstTry.push(`(${common})`)
    else bare.push(`(${common},${escape(status)},${attempts})`)
  }
  return [...statementOf(FIRST_TRY, firstTry), ...statementOf(BARE, bare), ...statementOf(WITH_BYTES, withBytes)]
}

function statementOf({ before, after }: typeof BARE, rows: string[]): Statement[] {
  return rows.length === 0 ? [] : [{ sql: before + rows.join() + after }]
}

/** Every text goes through the driver's escaping, also those that are ours. */
function commonText(row: EndedRow, ended: string): string {
  const { webhookId, eventId, seq, startedAt, durationMs, httpStatus } = row
  if (webhookId.length !== ID_WIDTH || eventId.length !== ID_WIDTH) {
    throw new RangeError('an id is wider or narrower than its field')
  }
  const ids = `${escape(webhookId)},${escape(eventId)}`
  const numbers = `${Math.round(durationMs)},${escape(row.class)},${httpStatus ?? 'NULL'}`
  return `${ids},${ended},${seq},${timeDigits(startedAt)},${numbers}`
}

let lastAtMs = NaN
let lastDigits = ''

/**
 * In UTC, as a number of all its digits, which the server takes apart sooner than a text. Of attempts that stand together many have
 * begun in the same millisecond.
 */
function timeDigits(at: Date): string {
  if (at.getTime() !== lastAtMs) {
    lastAtMs = at.getTime()
    lastDigits = at.toISOString().replace(/[-T:Z]/g, '')
  }
  return lastDigits
}
