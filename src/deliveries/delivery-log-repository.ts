/**
 * Reads the delivery log: pending deliveries stand in `delivery_queue`, ended ones in `deliveries`, and the list merges them.
 *
 * It is read in windows of the newest events. A window ends at an event id, its floor, and is read from both tables by their
 * keys, so that a page costs what it looks at and never a scan: one that finds little ends at a bound, and is short.
 */
import type { Knex } from 'knex'
import type { WebhookScope } from '../webhooks/webhook-rules.ts'
import { withinScope } from '../webhooks/webhooks-repository.ts'
import type { LogWebhook } from './delivery-log-webhooks-repository.ts'
import {
  beforeEvent,
  newestFirst,
  type DeliveryStatus,
  type LogFilters,
  type LoggedDelivery,
  type LogPageRequest,
  type LogPosition,
} from './delivery-log-rules.ts'

/** Events of a window. It grows tenfold until the page is full, up to so many events in all, or so many copies of them. */
const FIRST_WINDOW = { least: 16, most: 256 }
const LOOKED_AT = { least: 500, most: 2000 }
const MOST_COPIES = 10_000
/** Up to here the queue of the webhooks in question is read whole; above, it is looked up event by event. */
const SMALL_QUEUE = 2000

/** Of which webhooks: one, or all of a lab that a scope reaches, deleted ones too. */
export type LogSubject = { webhook: LogWebhook } | { lab: { id: string; accountId: string }; scope: WebhookScope }

export interface LogPage {
  deliveries: LoggedDelivery[]
  /** Where the next page goes on; null: there is nothing older. */
  next: LogPosition | null
}

/** What a page is read from. */
interface Source {
  labId: string
  webhookIds: string[]
  /** More than one reads whole waits for these webhooks. */
  longQueue: boolean
}

/** A page of the log, newest event first. It may hold fewer rows than asked for while `next` is not null. */
export async function listDeliveries(knex: Knex, subject: LogSubject, request: LogPageRequest): Promise<LogPage> {
  const source = await sourceOf(knex, subject)
  const found: LoggedDelivery[] = []
  if (source.webhookIds.length === 0) return { deliveries: found, next: null }
  // Each of the webhooks may have a copy of each event.
  const copies = source.webhookIds.length
  const most = within(LOOKED_AT, MOST_COPIES / copies)
  let after = request.after
  let looked = 0
  for (let size = within(FIRST_WINDOW, (4 * request.limit) / copies); looked < most; size *= 10) {
    const window = Math.min(size, most - looked)
    const floor = await findFloor(knex, source, request.fromId, after, window)
    const range = { after, fromId: floor ?? request.fromId }
    found.push(...(await readWindow(knex, source, range, request, request.limit + 1 - found.length)))
    looked += window
    if (found.length > request.limit) {
      const deliveries = found.slice(0, request.limit)
      return { deliveries, next: deliveries.at(-1)! }
    }
    if (floor === undefined) return { deliveries: found, next: null }
    after = beforeEvent(floor)
  }
  return { deliveries: found, next: after }
}

const within = ({ least, most }: { least: number; most: number }, value: number) =>
  Math.ceil(Math.min(most, Math.max(least, value)))

async function sourceOf(knex: Knex, subject: LogSubject): Promise<Source> {
  if ('webhook' in subject) {
    const { id, labId } = subject.webhook
    return { labId, webhookIds: [id], longQueue: await hasLongQueue(knex, [id]) }
  }
  const { lab, scope } = subject
  const rows = await knex('webhooks')
    .where({ account_id: lab.accountId, lab_id: lab.id })
    .modify(withinScope, scope)
    .orderBy('id')
    .select('id')
  const webhookIds = rows.map((row: { id: string }) => row.id)
  return { labId: lab.id, webhookIds, longQueue: webhookIds.length > 0 && (await hasLongQueue(knex, webhookIds)) }
}

async function hasLongQueue(knex: Knex, webhookIds: string[]): Promise<boolean> {
  const [rows] = await knex.raw(
    'SELECT COUNT(*) AS n FROM (SELECT 1 FROM delivery_queue WHERE webhook_id IN (?) LIMIT ?) some_rows',
    [webhookIds, SMALL_QUEUE + 1],
  )
  return Number(rows[0].n) > SMALL_QUEUE
}

/**
 * The id of the last event of a window: the n-th behind the position, of the events that the lab has or, for one webhook
 * with a short queue, of its ended deliveries (its events may be rare among the lab's).
 * @returns undefined when there are no more than that
 */
async function findFloor(
  knex: Knex,
  { labId, webhookIds, longQueue }: Source,
  fromId: string,
  after: LogPosition,
  window: number,
): Promise<string | undefined> {
  const [rows] =
    webhookIds.length === 1 && !longQueue
      ? await knex.raw(
          `SELECT event_id AS id FROM deliveries WHERE webhook_id = ? AND event_id >= ? AND event_id <= ?
           ORDER BY event_id DESC LIMIT 1 OFFSET ?`,
          [webhookIds[0]!, fromId, after.eventId, window - 1],
        )
      : await knex.raw(
          `SELECT id FROM events WHERE lab_id = ? AND id >= ? AND id <= ? ORDER BY id DESC LIMIT 1 OFFSET ?`,
          [labId, fromId, after.eventId, window - 1],
        )
  return rows[0]?.id
}

interface Range {
  after: LogPosition
  fromId: string
}

async function readWindow(
  knex: Knex,
  source: Source,
  range: Range,
  filters: LogFilters,
  limit: number,
): Promise<LoggedDelivery[]> {
  const { status } = filters
  const isQueueAsked = status === undefined || status === 'pending' || status === 'discarded'
  // The queue first: what ends in between is then in both, and nothing is in neither.
  const queued = isQueueAsked ? await listQueued(knex, source, range, filters, limit) : []
  const ended = status === 'pending' ? [] : await listEnded(knex, source.webhookIds, range, filters, limit)
  const rows = new Map(queued.map((delivery) => [keyOf(delivery), delivery]))
  for (const { delivery, isQueued } of ended) {
    if (!isQueued || !rows.has(keyOf(delivery))) rows.set(keyOf(delivery), delivery)
  }
  return [...rows.values()].sort(newestFirst).slice(0, limit)
}

const keyOf = ({ eventId, webhookId }: LogPosition) => `${eventId} ${webhookId}`

/** The range's bounds on the key's columns, and the rest of the position's event in words that the key can't say. */
function rangeOf(table: string, { after, fromId }: Range): { sql: string; values: string[] } {
  return {
    sql: `${table}.event_id >= ? AND ${table}.event_id <= ? AND (${table}.event_id < ? OR ${table}.webhook_id < ?)`,
    values: [fromId, after.eventId, after.eventId, after.webhookId],
  }
}

/** One that is sent again by hand stands in the queue, too, and is as it stands there. */
const IS_QUEUED = `EXISTS (SELECT 1 FROM delivery_queue q WHERE q.event_id = d.event_id AND q.webhook_id = d.webhook_id)`

async function listEnded(
  knex: Knex,
  webhookIds: string[],
  range: Range,
  { status, type }: LogFilters,
  limit: number,
): Promise<{ delivery: LoggedDelivery; isQueued: boolean }[]> {
  const within = rangeOf('d', range)
  const [rows] = await knex.raw(
    `SELECT d.webhook_id, d.event_id, e.type, d.status, d.attempts, d.ended_at, ${IS_QUEUED} AS is_queued
     FROM deliveries d FORCE INDEX (PRIMARY) STRAIGHT_JOIN events e ON e.id = d.event_id
     WHERE d.webhook_id IN (?) AND ${within.sql}
       ${status === undefined ? '' : `AND d.status = ? AND NOT ${IS_QUEUED}`} ${type === undefined ? '' : 'AND e.type = ?'}
     ORDER BY d.event_id DESC, d.webhook_id DESC LIMIT ?`,
    [webhookIds, ...within.values, ...[status, type].filter((value) => value !== undefined), limit],
  )
  return (rows as Row[]).map((row) => ({
    delivery: { ...toDelivery(row), endedAt: row.ended_at as Date },
    isQueued: row.is_queued === 1,
  }))
}

/** Copies of an older epoch are discarded already, though their lane has not got round to it. */
const QUEUED_STATUS = `CASE WHEN w.state = 'active' AND q.epoch >= w.epoch THEN 'pending' ELSE 'discarded' END`
const QUEUED_COLUMNS = `q.webhook_id, q.event_id, e.type, ${QUEUED_STATUS} AS status, q.attempts, q.due_at`

async function listQueued(
  knex: Knex,
  { labId, webhookIds, longQueue }: Source,
  range: Range,
  { status, type }: LogFilters,
  limit: number,
): Promise<LoggedDelivery[]> {
  const within = rangeOf('q', range)
  const conditions = `${within.sql} ${type === undefined ? '' : 'AND e.type = ?'} ${status === undefined ? '' : `AND ${QUEUED_STATUS} = ?`}`
  const values = [...within.values, ...[type, status].filter((value) => value !== undefined)]
  const [rows] = longQueue
    ? // From the lab's events of the window to their rows in the queue, whose unique key begins with the event.
      await knex.raw(
        `SELECT ${QUEUED_COLUMNS} FROM events e STRAIGHT_JOIN delivery_queue q ON q.event_id = e.id
           STRAIGHT_JOIN webhooks w ON w.id = q.webhook_id
         WHERE e.lab_id = ? AND e.id >= ? AND e.id <= ? AND q.webhook_id IN (?) AND ${conditions}
         ORDER BY e.id DESC, q.webhook_id DESC LIMIT ?`,
        [labId, range.fromId, range.after.eventId, webhookIds, ...values, limit],
      )
    : await knex.raw(
        `SELECT ${QUEUED_COLUMNS} FROM delivery_queue q FORCE INDEX (PRIMARY) STRAIGHT_JOIN events e ON e.id = q.event_id
           STRAIGHT_JOIN webhooks w ON w.id = q.webhook_id
         WHERE q.webhook_id IN (?) AND ${conditions}
         ORDER BY q.event_id DESC, q.webhook_id DESC LIMIT ?`,
        [webhookIds, ...values, limit],
      )
  return (rows as Row[]).map(toQueued)
}

type Row = Record<string, unknown>

function toQueued(row: Row): LoggedDelivery {
  const delivery = toDelivery(row)
  return { ...delivery, nextAttemptAt: delivery.status === 'pending' ? (row.due_at as Date) : null }
}

function toDelivery(row: Row): LoggedDelivery {
  return {
    webhookId: row.webhook_id as string,
    eventId: row.event_id as string,
    type: row.type as string,
    status: row.status as DeliveryStatus,
    attempts: row.attempts as number,
    nextAttemptAt: null,
    endedAt: null,
  }
}

/** One delivery of a webhook that the caller may see. */
export async function findDelivery(
  knex: Knex,
  webhookId: string,
  eventId: string,
): Promise<LoggedDelivery | undefined> {
  const [queued] = await knex.raw(
    `SELECT ${QUEUED_COLUMNS} FROM delivery_queue q JOIN events e ON e.id = q.event_id JOIN webhooks w ON w.id = q.webhook_id
     WHERE q.event_id = ? AND q.webhook_id = ?`,
    [eventId, webhookId],
  )
  if (queued[0]) return toQueued(queued[0])
  const ended = await knex('deliveries as d')
    .join('events as e', 'e.id', 'd.event_id')
    .where({ 'd.webhook_id': webhookId, 'd.event_id': eventId })
    .first('d.*', 'e.type')
  return ended && { ...toDelivery(ended), endedAt: ended.ended_at }
}

export interface LoggedAttempt {
  n: number
  startedAt: Date
  durationMs: number
  class: string
  status: number | null
  error: string | null
  /** The first 1 KB of the answer's body. */
  answer: Buffer | null
}

export async function listAttempts(knex: Knex, webhookId: string, eventId: string): Promise<LoggedAttempt[]> {
  const columns = ['started_at', 'duration_ms', 'class', 'error', 'answer'] as const
  const delivery = { webhook_id: webhookId, event_id: eventId }
  // One that ends at this moment is in one of the two: they are read in one statement.
  const rows: Record<string, any>[] = await knex('earlier_attempts')
    .where(delivery)
    .select('n', 'status', ...columns)
    .unionAll(
      knex('deliveries')
        .where(delivery)
        .whereNotNull('class')
        .select({ n: 'attempts', status: 'http_status' }, ...columns),
    )
  rows.sort((a, b) => a.n - b.n)
  return rows.map((row) => ({
    n: row.n,
    startedAt: row.started_at,
    durationMs: row.duration_ms,
    class: row.class,
    status: row.status,
    error: row.error,
    answer: row.answer,
  }))
}

/** The exact bytes that are sent; undefined: not kept any more. */
export async function findEventBody(knex: Knex, eventId: string): Promise<Buffer | undefined> {
  const row = await knex('event_bodies').where({ event_id: eventId }).first('body')
  return row?.body
}
