/**
 * Lists of ids that a statement joins, one look-up for each: few as they are, many as a text of fixed width, which the server
 * cuts up and need not parse.
 */
import { escape } from 'mysql2'
import type { Statement } from '../../db/batch.ts'

/** 8 x 8 x 8 rows of numbers. */
export const MOST_ROWS = 512
const DIGITS = `(SELECT 0 AS d ${[1, 2, 3, 4, 5, 6, 7].map((d) => `UNION ALL SELECT ${d}`).join(' ')})`
const NUMBERS = `(SELECT 64 * a.d + 8 * b.d + c.d AS n FROM ${DIGITS} a JOIN ${DIGITS} b JOIN ${DIGITS} c)`

/** Up to so many rows are said one by one: all the numbers cost the server more than they do. */
export const MOST_LITERAL_ROWS = 64

const ID_WIDTH = 26

/**
 * A statement that joins a list, in this order, with `STRAIGHT_JOIN`. In the columns' own collation, without which the join finds
 * no key.
 */
interface ListStatement {
  columns: string[]
  before: string
  after: string
}

/**
 * Each row is one look-up in the unique key. MariaDB scans the whole table for a list of row values, and takes 15 times as long
 * for a chain of conditions.
 */
const REMOVE: ListStatement = {
  columns: ['event_id', 'webhook_id'],
  before: 'DELETE q FROM ',
  after: ` done
    STRAIGHT_JOIN delivery_queue q ON q.event_id = done.event_id AND q.webhook_id = done.webhook_id`,
}

/**
 * Copies that wait no longer.
 * @throws RangeError when an id is not one
 */
export function removedStatements(copies: { webhookId: string; eventId: string }[]): Statement[] {
  return listStatements(
    REMOVE,
    copies.map(({ webhookId, eventId }) => [eventId, webhookId]),
  )
}

/**
 * For a plain list of ids both servers read the whole of a table that seems small, whatever index they are told to use, and so
 * wait for the rows of every transaction that is still open.
 */
const REMOVE_WAITING: ListStatement = {
  columns: ['event_id'],
  before: 'DELETE u FROM ',
  after: ` routed
    STRAIGHT_JOIN unrouted_events u FORCE INDEX (PRIMARY) ON u.event_id = routed.event_id`,
}

/**
 * Events that wait for their fan-out no longer.
 * @throws RangeError when an id is not one
 */
export function routedStatements(eventIds: string[]): Statement[] {
  return listStatements(
    REMOVE_WAITING,
    eventIds.map((id) => [id]),
  )
}

const RECORDED: ListStatement[] = [
  {
    columns: ['webhook_id', 'event_id'],
    before: 'SELECT a.webhook_id, a.event_id, a.n FROM ',
    after: ` made STRAIGHT_JOIN earlier_attempts a FORCE INDEX (PRIMARY)
      ON a.webhook_id = made.webhook_id AND a.event_id = made.event_id`,
  },
  {
    columns: ['webhook_id', 'event_id'],
    before: 'SELECT d.webhook_id, d.event_id, d.attempts AS n FROM ',
    after: ` made STRAIGHT_JOIN deliveries d FORCE INDEX (PRIMARY)
      ON d.webhook_id = made.webhook_id AND d.event_id = made.event_id AND d.class IS NOT NULL`,
  },
]

/**
 * Reads the attempts of these copies that are on disk, as `webhook_id`, `event_id`, `n`: each is one look-up in a primary key. For a
 * list of webhooks and one of events both servers look up each with each, or read all of a webhook.
 * @throws RangeError when an id is not one
 */
export function recordedStatements(copies: { webhookId: string; eventId: string }[]): Statement[] {
  const rows = copies.map(({ webhookId, eventId }) => [webhookId, eventId])
  return RECORDED.flatMap((list) => listStatements(list, rows))
}

function listStatements(list: ListStatement, rows: string[][]): Statement[] {
  if (rows.some((ids) => ids.some((id) => id.length !== ID_WIDTH))) {
    throw new RangeError('an id is wider or narrower than its field')
  }
  if (rows.length > 0 && rows.length <= MOST_LITERAL_ROWS) return [literalStatement(list, rows)]
  const statements: Statement[] = []
  for (let from = 0; from < rows.length; from += MOST_ROWS) {
    statements.push(packedStatement(list, rows.slice(from, from + MOST_ROWS)))
  }
  return statements
}

function literalStatement({ columns, before, after }: ListStatement, rows: string[][]): Statement {
  const texts = rows.map((ids) => {
    const cells = ids.map((id, n) => `_ascii${escape(id)} COLLATE ascii_bin AS ${columns[n]}`)
    return `SELECT ${cells.join()}`
  })
  return { sql: `${before}(${texts.join(' UNION ALL ')})${after}` }
}

function packedStatement({ columns, before, after }: ListStatement, rows: string[][]): Statement {
  const cut = columns.map(
    (column, n) => `SUBSTR(r.ids, x.n * ${columns.length * ID_WIDTH} + ${n * ID_WIDTH + 1}, ${ID_WIDTH}) AS ${column}`,
  )
  const ids = `(SELECT ${cut.join(', ')}
    FROM (SELECT CONVERT(? USING ascii) COLLATE ascii_bin AS ids) r JOIN ${NUMBERS} x WHERE x.n < ?)`
  return { sql: before + ids + after, values: [rows.flat().join(''), rows.length] }
}
