/**
 * Rows of `delivery_queue`, pending deliveries in the order in which a lane reads them.
 */
import type { Knex } from 'knex'
import type { Statement } from '../../db/batch.ts'
import type { Linked } from '../linked-line.ts'
import {
  COLUMNS,
  isToBeRead,
  KEYS,
  listDueRows,
  QUEUE,
  WITH_BODIES,
  type DueRequest,
  type DueRow,
  type QueuePosition,
  type ReadTimes,
  type Row,
} from './due-rows.ts'

/** A copy that a lane has read and not recorded yet, without its body. */
export interface HeldCopy extends Linked<HeldCopy> {
  eventId: string
  epoch: number
}

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
  /** As its lane holds it. */
  held?: HeldCopy | undefined
  /** Its lane's `queueMoves` when it was read, or less. */
  queueMoves?: number | undefined
}

/** Due deliveries of one webhook, in order. No row is locked: the lane's owner is the only reader that acts on them. */
export async function listDueDeliveries(knex: Knex, request: DueRequest): Promise<PendingDelivery[]> {
  return (await listDueOfSeveral(knex, [request]))[0]!
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
         SELECT ${KEYS} FROM ${QUEUE}
         WHERE q.webhook_id = ? AND ${due.sql} ORDER BY q.due_at, q.event_id LIMIT ?
       ) first ORDER BY first.event_id LIMIT ?
     ) q ${WITH_BODIES}`,
    [webhookId, ...due.values, OLDEST_OF, limit],
  )
  return (rows as Row[]).map((row) => toPending(webhookId, row)).sort(inQueueOrder)
}

/** The same from several queues, in one or two round trips. @returns the deliveries of each, in the order asked */
export async function listDueOfSeveral(knex: Knex, requests: DueRequest[]): Promise<PendingDelivery[][]> {
  const rows = await listDueRows(knex, requests, COLUMNS, WITH_BODIES)
  return inLists(requests, rows, (row) => toPending(requests[row.place]!.webhookId, row))
}

function inLists(
  requests: DueRequest[],
  rows: DueRow[],
  pendingOf: (row: DueRow) => PendingDelivery,
): PendingDelivery[][] {
  const lists = requests.map((): PendingDelivery[] => [])
  for (const row of rows) lists[row.place]!.push(pendingOf(row))
  return lists.length === 1 ? lists : lists.map((list) => list.sort(inQueueOrder))
}

/** What the webhooks that an event goes to have in common. It never changes, but that an erasure takes it. */
export interface EventBody {
  isMessage: boolean
  /** The exact bytes to send. */
  body: Buffer
}

/** Due deliveries whose bodies the reader may have already. */
export interface DueKeys {
  requests: DueRequest[]
  eventIds: string[]
  rows: DueRow[]
}

/** As `listDueOfSeveral`, without the bodies. */
export async function listDueKeys(knex: Knex, requests: DueRequest[]): Promise<DueKeys> {
  const rows = await listDueRows(knex, requests, KEYS, '')
  return { requests, eventIds: rows.map((row) => row.event_id as string), rows }
}

/** @returns as `listDueOfSeveral` does; undefined where a body is not among the given */
export function withBodies(
  { requests, rows }: DueKeys,
  bodies: Map<string, EventBody>,
): PendingDelivery[][] | undefined {
  for (const row of rows) {
    const known = bodies.get(row.event_id as string)
    if (!known) return undefined
    row.body = known.body
    row.is_message = known.isMessage ? 1 : 0
  }
  return inLists(requests, rows, (row) => toPending(requests[row.place]!.webhookId, row))
}

/**
 * Bodies of these events that are to be sent. One that an erasure has taken is none, though something stands in its place: the keys
 * may have been read before that.
 */
export async function listBodies(knex: Knex, eventIds: string[]): Promise<Map<string, EventBody>> {
  const [rows] = await knex.raw(
    `SELECT b.event_id, b.is_message, b.body FROM event_bodies b FORCE INDEX (PRIMARY)
     WHERE b.event_id IN (?) AND NOT EXISTS (SELECT 1 FROM erased_events x WHERE x.event_id = b.event_id)`,
    [eventIds],
  )
  const bodies = new Map<string, EventBody>()
  for (const row of rows as Row[]) {
    bodies.set(row.event_id as string, { isMessage: row.is_message === 1, body: row.body as Buffer })
  }
  return bodies
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
    held: undefined,
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
