/**
 * Rows of `delivery_queue`, pending deliveries in the order in which a lane reads them.
 */
import type { Knex } from 'knex'
import { sendThrough, type Statement } from '../../db/batch.ts'
import { endOfOldCopy } from '../messages/message-rules.ts'
import { lockMessagesStatement, recordCopyEnds } from '../messages/messages-repository.ts'
import { removedStatements } from './packed-rows.ts'

export interface PendingDelivery {
  webhookId: string
  eventId: string
  dueAt: Date
  /** Attempts made so far. */
  attempts: number
  /** So many of them came before their time, because the webhook had recovered; at most two for each at its time. */
  earlyAttempts: number
  /** The webhook's epoch when this copy was routed; an older one than the webhook's is discarded. */
  epoch: number
  /** Asked for by hand: sent once, judges nothing. */
  isTest: boolean
  isMessage: boolean
  /** The exact bytes to send. */
  body: Buffer
  /** In the order in which its lane has read it; 0: not read by one yet. */
  place: number
}

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
function isToBeRead({ now, until }: ReadTimes): { sql: string; values: Date[] } {
  if (until <= now) return { sql: 'q.due_at <= ?', values: [until] }
  return {
    sql: `q.due_at <= ? AND (q.due_at <= ? OR (3 * q.early_attempts < 2 * q.attempts AND q.early_attempts < ${MOST_EARLY} AND q.due_at > ?))`,
    values: [until, now, new Date(now.getTime() + SOON_MS)],
  }
}

const COLUMNS = 'q.event_id, q.due_at, q.attempts, q.early_attempts, q.epoch, q.is_test, b.is_message, b.body'
/**
 * Order and keys are said. Over several lanes at once both servers would read all bodies for each lane where that are no more than the
 * lane has copies: statistics count what has just been filled as small. MySQL may begin with all bodies of later events.
 */
const QUEUE = 'delivery_queue q FORCE INDEX (PRIMARY)'
const WITH_BODIES = 'STRAIGHT_JOIN event_bodies b FORCE INDEX (PRIMARY) ON b.event_id = q.event_id'

/** What a lane reads next. */
export interface DueRequest {
  webhookId: string
  /** Reads what is due up to then. */
  times: ReadTimes
  /** Goes on behind this position; undefined: from the head of the queue. */
  after: QueuePosition | undefined
  limit: number
}

interface Sql {
  sql: string
  values: unknown[]
}

function dueRows({ webhookId, times, after, limit }: DueRequest): Sql {
  const due = isToBeRead(times)
  const order = 'ORDER BY q.due_at, q.event_id LIMIT ?'
  if (!after)
    return {
      sql: `FROM ${QUEUE} ${WITH_BODIES} WHERE q.webhook_id = ? AND ${due.sql} ${order}`,
      values: [webhookId, ...due.values, limit],
    }
  // Written so that both servers see two ranges of the primary key, one behind the other: compared as a pair, the two columns
  // would make them walk every row of one due time.
  return {
    sql: `FROM ${QUEUE} ${WITH_BODIES}
     WHERE q.webhook_id = ? AND ${due.sql} AND (q.due_at > ? OR (q.due_at = ? AND q.event_id > ?)) ${order}`,
    values: [webhookId, ...due.values, after.dueAt, after.dueAt, after.eventId, limit],
  }
}

/** Due deliveries of one webhook, in order. No row is locked: the lane's owner is the only reader that acts on them. */
export async function listDueDeliveries(knex: Knex, request: DueRequest): Promise<PendingDelivery[]> {
  const { sql, values } = dueRows(request)
  const [rows] = await knex.raw(`SELECT ${COLUMNS} ${sql}`, values as Knex.RawBinding[])
  const list: PendingDelivery[] = []
  for (const row of rows as Row[]) list.push(toPending(request.webhookId, row))
  return list
}

/** Of so many that a recovery brings, the oldest come first: their keys are read each time, and each is small. */
const OLDEST_OF = 10_000

/**
 * The same after a recovery: of those that stand first in the queue the oldest events, and these in the order of the queue. What
 * waits for its retry stands in the order of that, which chance decides, and how often it has failed.
 */
export async function listOldestDeliveries(
  knex: Knex,
  webhookId: string,
  times: ReadTimes,
  limit: number,
): Promise<PendingDelivery[]> {
  const due = isToBeRead(times)
  const [rows] = await knex.raw(
    `SELECT ${COLUMNS} FROM (
       SELECT first.* FROM (
         SELECT q.event_id, q.due_at, q.attempts, q.early_attempts, q.epoch, q.is_test FROM ${QUEUE}
         WHERE q.webhook_id = ? AND ${due.sql} ORDER BY q.due_at, q.event_id LIMIT ?
       ) first ORDER BY first.event_id LIMIT ?
     ) q ${WITH_BODIES}`,
    [webhookId, ...due.values, OLDEST_OF, limit],
  )
  return (rows as Row[]).map((row) => toPending(webhookId, row)).sort(inQueueOrder)
}

/** The same from several queues, in one statement. @returns the deliveries of each, in the order asked */
export async function listDueOfSeveral(knex: Knex, requests: DueRequest[]): Promise<PendingDelivery[][]> {
  if (requests.length === 1) return [await listDueDeliveries(knex, requests[0]!)]
  // Told apart by their place: two may ask for the same webhook, one of them for a lane that was just lost.
  const parts = requests.map(dueRows)
  const [rows] = await knex.raw(
    parts.map(({ sql }, place) => `(SELECT ${place} AS place, ${COLUMNS} ${sql})`).join(' UNION ALL '),
    parts.flatMap(({ values }) => values) as Knex.RawBinding[],
  )
  const lists = requests.map((): PendingDelivery[] => [])
  for (const row of rows as (Row & { place: number })[]) {
    lists[row.place]!.push(toPending(requests[row.place]!.webhookId, row))
  }
  return lists.map((list) => list.sort(inQueueOrder))
}

/** Copies of these events for these webhooks, for the transaction that has just queued them. */
export function copiesStatement(webhookIds: string[], eventIds: string[]): Statement {
  return {
    sql: `SELECT q.webhook_id, ${COLUMNS} FROM delivery_queue q FORCE INDEX (delivery_queue_delivery) ${WITH_BODIES}
          WHERE q.event_id IN (?) AND q.webhook_id IN (?)`,
    values: [eventIds, webhookIds],
  }
}

/** @returns what `copiesStatement` has read, by webhook, in the order in which its lane reads */
export function readCopies(rows: Row[]): Map<string, PendingDelivery[]> {
  const copies = rows.map((row) => toPending(row.webhook_id as string, row)).sort(inQueueOrder)
  return Map.groupBy(copies, ({ webhookId }) => webhookId)
}

/** Neither server promises an order over the parts of a union. */
function inQueueOrder(a: PendingDelivery, b: PendingDelivery): number {
  return a.dueAt.getTime() - b.dueAt.getTime() || (a.eventId < b.eventId ? -1 : 1)
}

type Row = Record<string, unknown>

function toPending(webhookId: string, row: Row): PendingDelivery {
  return {
    webhookId,
    eventId: row.event_id as string,
    dueAt: row.due_at as Date,
    attempts: row.attempts as number,
    earlyAttempts: row.early_attempts as number,
    epoch: row.epoch as number,
    isTest: row.is_test === 1,
    isMessage: row.is_message === 1,
    body: row.body as Buffer,
    place: 0,
  }
}

/** Events that wait up to a position and are due by a time, some of them: keys alone, which are small and stand together. */
export async function listWaitingUpTo(
  knex: Knex,
  webhookId: string,
  times: ReadTimes,
  { dueAt, eventId }: QueuePosition,
  limit: number,
): Promise<string[]> {
  const due = isToBeRead(times)
  const [rows] = await knex.raw(
    `SELECT q.event_id FROM ${QUEUE}
     WHERE q.webhook_id = ? AND ${due.sql} AND (q.due_at < ? OR (q.due_at = ? AND q.event_id <= ?))
     ORDER BY q.due_at, q.event_id LIMIT ?`,
    [webhookId, ...due.values, dueAt, dueAt, eventId, limit],
  )
  return (rows as { event_id: string }[]).map((row) => row.event_id)
}

/**
 * Queues a test for one webhook, past the fan-out. The caller makes the lane due afterwards, in the same transaction.
 * @param epoch the webhook's, read under its lock
 */
export async function insertTestDelivery(
  trx: Knex.Transaction,
  delivery: { webhookId: string; eventId: string; dueAt: Date; epoch: number },
): Promise<void> {
  await trx('delivery_queue').insert({
    webhook_id: delivery.webhookId,
    due_at: delivery.dueAt,
    event_id: delivery.eventId,
    epoch: delivery.epoch,
    is_test: 1,
  })
}

export interface Discarded {
  /** 0 when none is left, or when the lane was lost. */
  copies: number
  /** Messages among them that no other webhook has: they are due at the gateway now. */
  normalMessages: number
}

const NOTHING_DISCARDED: Discarded = { copies: 0, normalMessages: 0 }

/** Whether what is held has copies of an older epoch among it. */
async function holdsOldCopies(
  trx: Knex.Transaction,
  lane: { webhookId: string; epoch: number; heldEventIds: string[] },
): Promise<boolean> {
  const row = await trx('delivery_queue')
    .where({ webhook_id: lane.webhookId })
    .where('epoch', '<', lane.epoch)
    .whereIn('event_id', lane.heldEventIds)
    .first('event_id')
  return row !== undefined
}

/**
 * Discards pending copies of a webhook that were routed under an older epoch: they stay in the log and are never sent by
 * themselves; messages among them are handed back. Only the lane's owner does so.
 * @param lane with the state that was read together with the epoch: the two tell what has ended a copy; what is held is left to
 *   the attempt that is made of it
 */
export async function discardOldCopies(
  trx: Knex.Transaction,
  lane: { webhookId: string; token: string; epoch: number; state: string; heldEventIds: string[] },
  now: Date,
  limit: number,
): Promise<Discarded> {
  const owned = await trx('lanes')
    .where({ webhook_id: lane.webhookId, owner: lane.token })
    .forUpdate()
    .first('clean_epoch')
  if (!owned) return NOTHING_DISCARDED
  const rows = await trx('delivery_queue as q')
    .leftJoin('messages as m', 'm.event_id', 'q.event_id')
    .where('q.webhook_id', lane.webhookId)
    .where('q.epoch', '<', lane.epoch)
    .whereNotIn('q.event_id', lane.heldEventIds)
    .orderBy(['q.due_at', 'q.event_id'])
    .limit(limit)
    .select('q.event_id', 'q.due_at', 'q.attempts', 'q.epoch', { message_id: 'm.event_id' })
  if (rows.length === 0) {
    // What a fan-out still adds under an old epoch is due at once, and found by reading.
    if (owned.clean_epoch < lane.epoch && !(await holdsOldCopies(trx, lane))) {
      await trx('lanes').where({ webhook_id: lane.webhookId }).update({ clean_epoch: lane.epoch })
    }
    return NOTHING_DISCARDED
  }
  const ended = rows.flatMap(({ message_id: eventId, epoch }) =>
    eventId === null ? [] : [{ eventId: eventId as string, end: endOfOldCopy(lane, epoch) }],
  )
  const messageIds = ended.map(({ eventId }) => eventId)
  const send = sendThrough(trx)
  if (messageIds.length > 0) await send([lockMessagesStatement(messageIds)])
  await trx('deliveries')
    .insert(
      rows.map((row) => ({
        webhook_id: lane.webhookId,
        event_id: row.event_id,
        status: 'discarded',
        attempts: row.attempts,
        ended_at: now,
      })),
    )
    .onConflict()
    .merge(['status', 'attempts', 'ended_at'])
  await send(removedStatements(rows.map((row) => ({ webhookId: lane.webhookId, eventId: row.event_id }))))
  return { copies: rows.length, normalMessages: await recordCopyEnds(send, ended, now) }
}
