/**
 * Reads rows of `delivery_queue` that are due, of several lanes together: what each has at the head of its queue, or behind the
 * position up to which it has read.
 */
import type { Knex } from 'knex'

/** Where a lane's reading stands in the queue. */
export interface QueuePosition {
  dueAt: Date
  eventId: string
}

/** What is due sooner than in this time comes by itself within the minute that a recovery has. */
const SOON_MS = 45_000
/** Their count is a byte. A schedule of nine attempts has 18 at most. */
const MOST_EARLY = 250

export interface ReadTimes {
  now: Date
  /** Later than now: what waits for a later retry is read as well, because its webhook has recovered. */
  until: Date
}

/**
 * A recovery brings what waits for its time, once for each attempt that the copy has had at its time, which makes two
 * (`recording-rules.ts`): what is never taken, beside copies that are, is not tried at each 2xx.
 */
export function isToBeRead({ now, until }: ReadTimes): { sql: string; values: Date[] } {
  if (until <= now) return { sql: 'q.due_at <= ?', values: [until] }
  return {
    sql: `q.due_at <= ? AND (q.due_at <= ? OR (3 * q.early_attempts < 2 * q.attempts AND q.early_attempts < ${MOST_EARLY} AND q.due_at > ?))`,
    values: [until, now, new Date(now.getTime() + SOON_MS)],
  }
}

export const KEYS = 'q.event_id, q.due_at, q.attempts, q.early_attempts, q.epoch, q.is_test'
export const COLUMNS = `${KEYS}, b.is_message, b.body`
/**
 * Order and keys are said. Over several lanes at once both servers would read all bodies for each lane where that are no more than the
 * lane has copies: statistics count what has just been filled as small. MySQL may begin with all bodies of later events.
 */
export const QUEUE = 'delivery_queue q FORCE INDEX (PRIMARY)'
export const WITH_BODIES = 'STRAIGHT_JOIN event_bodies b FORCE INDEX (PRIMARY) ON b.event_id = q.event_id'

/** What a lane reads next. */
export interface DueRequest {
  webhookId: string
  /** Reads what is due up to then. */
  times: ReadTimes
  /** Goes on behind this position; undefined: from the head of the queue. */
  after: QueuePosition | undefined
  limit: number
  /** So many of those at the head may be under way, and are read once more. */
  held?: number
}

interface Sql {
  sql: string
  values: unknown[]
}

/** @param join with the bodies, or '' for keys alone */
function dueRows({ webhookId, times, after, limit }: DueRequest, join: string): Sql {
  const due = isToBeRead(times)
  const order = 'ORDER BY q.due_at, q.event_id LIMIT ?'
  if (!after)
    return {
      sql: `FROM ${QUEUE} ${join} WHERE q.webhook_id = ? AND ${due.sql} ${order}`,
      values: [webhookId, ...due.values, limit],
    }
  // Written so that both servers see two ranges of the primary key, one behind the other: compared as a pair, the two columns
  // would make them walk every row of one due time.
  return {
    sql: `FROM ${QUEUE} ${join}
     WHERE q.webhook_id = ? AND ${due.sql} AND (q.due_at > ? OR (q.due_at = ? AND q.event_id > ?)) ${order}`,
    values: [webhookId, ...due.values, after.dueAt, after.dueAt, after.eventId, limit],
  }
}

export type Row = Record<string, unknown>

export interface DueRow extends Row {
  /** Of the request that it answers. */
  place: number
}

/** As many lanes as make one walk over their heads cheaper than a part of a union for each, which the server plans one by one. */
const FEW_HEADS = 3
/** Most have a copy or two that is new; a lane that has more takes the room of others, which are then read as if this had not been. */
const NEW_ROWS_A_HEAD = 4
const SPARE_ROWS = 16

/**
 * @param join with the bodies, or '' for keys alone
 * @returns of one request in the order of its queue, of several in any order
 */
export async function listDueRows(
  knex: Knex,
  requests: DueRequest[],
  columns: string,
  join: string,
): Promise<DueRow[]> {
  const heads: number[] = []
  const others: number[] = []
  for (const [place, request] of requests.entries()) (isHead(request) ? heads : others).push(place)
  const read: Read = { knex, requests, columns, join }
  if (heads.length < FEW_HEADS) return listApart(read, [...requests.keys()])
  const [ofHeads, ofOthers] = await Promise.all([listHeads(read, heads), listApart(read, others)])
  return [...ofHeads, ...ofOthers]
}

interface Read {
  knex: Knex
  requests: DueRequest[]
  columns: string
  join: string
}

const isHead = ({ after, times: { now, until } }: DueRequest): boolean => !after && until <= now

/** @param places of fewer than 1,000 lanes: MariaDB turns a longer list into a query of its own */
async function listHeads(read: Read, places: number[]): Promise<DueRow[]> {
  const { knex, requests, columns, join } = read
  // Two may ask for the same webhook, one of them for a lane that was just lost.
  const placesOf = Map.groupBy(places, (place) => requests[place]!.webhookId)
  // They have asked in one moment.
  const until = new Date(Math.max(...places.map((place) => requests[place]!.times.until.getTime())))
  const most = places.reduce(
    (sum, place) => sum + (requests[place]!.held ?? 0),
    NEW_ROWS_A_HEAD * placesOf.size + SPARE_ROWS,
  )
  const [walked] = await knex.raw(
    `SELECT q.webhook_id, ${columns} FROM ${QUEUE} ${join} WHERE q.webhook_id IN (?) AND q.due_at <= ?
     ORDER BY q.webhook_id, q.due_at, q.event_id LIMIT ?`,
    [[...placesOf.keys()], until, most] as unknown as Knex.RawBinding[],
  )
  const rowsOf = Map.groupBy(walked as Row[], (row) => row.webhook_id as string)
  const endedAt = walked.length < most ? undefined : (walked.at(-1).webhook_id as string)
  const rows: DueRow[] = []
  // What the walk did not come to the end of.
  const open: number[] = []
  for (const [webhookId, asked] of placesOf) {
    const own = rowsOf.get(webhookId) ?? []
    for (const place of asked) {
      const { limit, times } = requests[place]!
      if (endedAt !== undefined && webhookId >= endedAt && own.length < limit) open.push(place)
      else rows.push(...own.slice(0, limit).flatMap((row) => (isDueBy(row, times.until) ? [{ ...row, place }] : [])))
    }
  }
  return [...rows, ...(await listApart(read, open))]
}

const isDueBy = (row: Row, time: Date): boolean => (row.due_at as Date) <= time

/** Each request by itself, in one statement. */
async function listApart({ knex, requests, columns, join }: Read, places: number[]): Promise<DueRow[]> {
  if (places.length === 0) return []
  const parts = places.map((place) => {
    const { sql, values } = dueRows(requests[place]!, join)
    return { sql: `SELECT ${place} AS place, ${columns} ${sql}`, values }
  })
  const [rows] = await knex.raw(
    parts.length === 1 ? parts[0]!.sql : parts.map(({ sql }) => `(${sql})`).join(' UNION ALL '),
    parts.flatMap(({ values }) => values) as Knex.RawBinding[],
  )
  return rows
}
