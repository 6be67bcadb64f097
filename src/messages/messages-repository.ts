/**
 * Rows of `messages`: what becomes of each `*.send` event. Its content is the event's body; its open copies are its rows in
 * `delivery_queue`.
 *
 * `offered` is left once, under the row's lock: for `taken` by the first 2xx, for `normal` (the gateway sends it) by the
 * transaction that ends the last open copy, or for `expired` (nobody sends it). Nothing leads out of the first two, so that no
 * message goes both ways: what a webhook answers to a copy of one that was sent again by hand changes nothing. An expired one
 * that is sent again by hand can still be taken, and goes the normal way no more.
 */
import type { Knex } from 'knex'
import type { Send, Statement } from '../../db/batch.ts'
import type { MessageEvent } from '../events/message-payloads.ts'
import { HAND_BACK_MAX_AGE_MS, type CopyEnd } from './message-rules.ts'

export function insertMessageStatement({ id, accountId, labId, createdAt }: MessageEvent): Statement {
  return {
    sql: `INSERT INTO messages (event_id, account_id, lab_id, state, created_at) VALUES (?, ?, ?, 'offered', ?)`,
    values: [id, accountId, labId, createdAt],
  }
}

/**
 * Locks the rows of messages of which a copy is about to end. It must be a statement before the one that ends the copy: who
 * waits for another ending of the same message here sees afterwards, with a fresh view, that the other copy is gone. Without
 * it two last copies that end at once would each see the other one, and nobody would send the message. By the primary key, whatever
 * the optimizer makes of a small table: a scan would wait for rows that it does not want, in no order. The state is read for that
 * alone: where the key holds all that is asked for, the server reads it from end to end in spite of the hint.
 */
export function lockMessagesStatement(eventIds: string[]): Statement {
  return {
    sql: 'SELECT event_id, state FROM messages FORCE INDEX (PRIMARY) WHERE event_id IN (?) ORDER BY event_id FOR UPDATE',
    values: [eventIds],
  }
}

export interface EndedCopy {
  eventId: string
  end: CopyEnd
}

/**
 * What the end of these copies makes of their messages. For locked rows, after the copies have left `delivery_queue` and
 * those that are tried again are back in it, in the same transaction.
 * @returns how many are due at the gateway now
 */
export async function recordCopyEnds(send: Send, copies: EndedCopy[], now: Date): Promise<number> {
  const results = await send(copyEndStatements(copies, now))
  return countNormal(copies, results)
}

/** The same for a transaction that sends its statements together; `countNormal` reads their results. */
export function copyEndStatements(copies: EndedCopy[], now: Date): Statement[] {
  const { taken, returned, lapsing } = byEnd(copies)
  const expiredBefore = new Date(now.getTime() - HAND_BACK_MAX_AGE_MS)
  return [
    // Before the other two: a batch may hold the 2xx of one webhook and the failure of another.
    ...(taken.length > 0
      ? [
          {
            sql: `UPDATE messages FORCE INDEX (PRIMARY) SET state = 'taken', decided_at = ?
                  WHERE event_id IN (?) AND state IN ('offered', 'expired')`,
            values: [now, taken],
          },
        ]
      : []),
    ...(lapsing.length > 0
      ? [
          {
            sql: `UPDATE messages FORCE INDEX (PRIMARY) SET state = 'expired', decided_at = ?
                  WHERE event_id IN (?) AND state = 'offered' AND created_at < ? AND ${NO_OPEN_COPY}`,
            values: [now, lapsing, expiredBefore],
          },
        ]
      : []),
    ...(returned.length + lapsing.length > 0 ? [handOverStatement([...returned, ...lapsing], now)] : []),
  ]
}

/** @param results of the statements that `copyEndStatements` made of the same copies */
export function countNormal(copies: EndedCopy[], results: { affectedRows: number }[]): number {
  const { returned, lapsing } = byEnd(copies)
  return returned.length + lapsing.length > 0 ? results.at(-1)!.affectedRows : 0
}

function byEnd(copies: EndedCopy[]) {
  const ids = (end: CopyEnd) => copies.filter((copy) => copy.end === end).map(({ eventId }) => eventId)
  const returned = ids('returned')
  // A copy that ended otherwise in the same batch decides: its message is handed over whatever its age.
  const others = new Set(returned)
  return { taken: ids('taken'), returned, lapsing: ids('lapsed').filter((id) => !others.has(id)) }
}

/** The index of the copies begins with the event. Under READ COMMITTED the look is a consistent read and locks nothing. */
const NO_OPEN_COPY = 'NOT EXISTS (SELECT 1 FROM delivery_queue q WHERE q.event_id = messages.event_id)'

/** Messages that are offered to nobody any more go the normal way, now. For rows that nobody else can change meanwhile. */
export function handOverStatement(eventIds: string[], now: Date): Statement {
  return {
    sql: `UPDATE messages FORCE INDEX (PRIMARY) SET state = 'normal', decided_at = ?, due_at = ?
          WHERE event_id IN (?) AND state = 'offered' AND ${NO_OPEN_COPY}`,
    values: [now, now, eventIds],
  }
}

/** A message that is to be sent the normal way. */
export interface DueMessage {
  eventId: string
  /** The event's, with the message in it; null: it is not there any more. */
  body: Buffer | null
  tries: number
  dueAt: Date
  /** Of an account that is for trying things out: no lab stands behind what it says. */
  isSandbox: boolean
}

/** Messages that wait for the gateway and are due, the longest waiting first. */
export async function listDueMessages(knex: Knex, now: Date, limit: number): Promise<DueMessage[]> {
  const rows = await knex('messages as m')
    .leftJoin('event_bodies as b', 'b.event_id', 'm.event_id')
    .leftJoin('accounts as a', 'a.id', 'm.account_id')
    .where('m.due_at', '<=', now)
    .orderBy(['m.due_at', 'm.event_id'])
    .limit(limit)
    .select('m.event_id', 'm.tries', 'm.due_at', 'b.body', 'a.sandbox')
  return rows.map((row) => ({
    eventId: row.event_id,
    body: row.body,
    tries: row.tries,
    dueAt: row.due_at,
    isSandbox: Boolean(row.sandbox),
  }))
}

/**
 * Takes a message for one try by moving its next one: of several daemons one wins. A crash before `recordMessageSent` means
 * that the gateway is asked again, with the same Idempotency-Key.
 */
export async function claimMessage(knex: Knex, message: DueMessage, nextTryAt: Date): Promise<boolean> {
  const changed = await knex('messages')
    .where({ event_id: message.eventId, due_at: message.dueAt, tries: message.tries })
    .update({ due_at: nextTryAt, tries: message.tries + 1 })
  return changed === 1
}

export async function recordMessageSent(knex: Knex, eventId: string, now: Date): Promise<void> {
  await knex('messages').where({ event_id: eventId }).update({ due_at: null, sent_at: now })
}
