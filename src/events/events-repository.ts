/**
 * The outbox: an event is three rows that are written in the transaction of the change that it tells of.
 */
import type { Knex } from 'knex'
import type { Statement } from '../../db/batch.ts'
import { currentTraceParent } from '../trace-context.ts'
import type { RecordedEvent, TestEvent } from './event-types.ts'
import { isMessageType, type MessageEvent } from './message-payloads.ts'
import { routingTime } from './routing-time.ts'

/**
 * The statements that record events; they belong in the transaction of the business rows, so that neither is there
 * without the other. `recorded_at` is the database's own clock in the statement (the session's time zone is UTC), see
 * `routing-time.ts`: routing compares it with the times at which webhooks became active.
 * @param traceParents of the requests that the events come from, where this is not the request itself
 */
export function recordEventStatements(events: RecordedEvent[], traceParents?: (string | null)[]): Statement[] {
  // Without its row in messages nobody would ever send it.
  if (events.some(({ type }) => isMessageType(type))) throw new Error('a message is recorded by recordMessage')
  return outboxStatements(events, 0, traceParents)
}

/** Those of a message's event alone: `messages/message-recording.ts` adds the row of the message. */
export function recordMessageEventStatements(event: MessageEvent): Statement[] {
  return outboxStatements([event], 1)
}

function outboxStatements(events: RecordedEvent[], isMessage: 0 | 1, traceParents?: (string | null)[]): Statement[] {
  return [
    ...eventStatements(events, isMessage, traceParents),
    {
      sql: `INSERT INTO unrouted_events (event_id, is_message) VALUES ${events.map(() => '(?, ?)').join(', ')}`,
      values: events.flatMap(({ id }) => [id, isMessage]),
    },
  ]
}

const EVENT_ROW = `SELECT ?, ?, ?, ?, ${routingTime('?')}, ?, ?, ?, ?, ?`

function eventStatements(
  events: (RecordedEvent | TestEvent)[],
  isMessage: 0 | 1,
  traceParents = events.map(() => currentTraceParent()),
): Statement[] {
  return [
    {
      // Not as VALUES: a query in there would lock what it reads.
      sql: `INSERT INTO events (id, account_id, lab_id, type, recorded_at, subject_id, corporate_id, doctor_id,
          hospital_id, trace_parent)
        ${events.map(() => EVENT_ROW).join(' UNION ALL ')}`,
      values: events.flatMap((event, n) => [
        event.id,
        event.accountId,
        event.labId,
        event.type,
        event.labId,
        event.labId,
        event.subjectId,
        event.corporateId,
        event.doctorId,
        event.hospitalId,
        traceParents[n],
      ]),
    },
    {
      sql: `INSERT INTO event_bodies (event_id, body, is_message) VALUES ${events.map(() => '(?, ?, ?)').join(', ')}`,
      values: events.flatMap(({ id, body }) => [id, body, isMessage]),
    },
  ]
}

/** The same within a transaction of knex. */
export async function recordEvent(trx: Knex.Transaction, event: RecordedEvent): Promise<void> {
  for (const { sql, values } of recordEventStatements([event])) await trx.raw(sql, values as Knex.RawBinding[])
}

/** A test goes to the one webhook that it is for: it waits for no fan-out, and the caller queues it. */
export async function recordTestEvent(trx: Knex.Transaction, event: TestEvent): Promise<void> {
  for (const { sql, values } of eventStatements([event], 0)) await trx.raw(sql, values as Knex.RawBinding[])
}

export interface TracedEvent {
  /** As in the header `traceparent`. */
  traceParent: string
  type: string
}

/**
 * Those of the events that were recorded by a request that is traced, by id.
 * @throws when it takes longer than that
 */
export async function listTracedEvents(
  knex: Knex,
  eventIds: string[],
  limitMs: number,
): Promise<Map<string, TracedEvent>> {
  const rows = await knex('events')
    .whereIn('id', eventIds)
    .whereNotNull('trace_parent')
    .select('id', 'type', { traceParent: 'trace_parent' })
    .timeout(limitMs)
  return new Map(rows.map(({ id, type, traceParent }) => [id, { type, traceParent }]))
}
