/**
 * The outbox: an event is three rows that are written in the transaction of the change that it tells of.
 */
import type { Knex } from 'knex'
import type { Statement } from '../../db/batch.ts'
import { currentTraceParent } from '../trace-context.ts'
import type { RecordedEvent, TestEvent } from './event-types.ts'
import { isMessageType, type MessageEvent } from './message-payloads.ts'
import { routingTime, routingTimeOfEach } from './routing-time.ts'

/**
 * The statements that record events; they belong in the transaction of the business rows, so that neither is there
 * without the other. `recorded_at` is the database's own clock in the statement (the session's time zone is UTC), see
 * `routing-time.ts`: routing compares it with the times at which webhooks became active.
 * By the first of them the events wait for their fan-out: a daemon that is told of one while the others are under way finds it, and
 * waits for the end of its transaction.
 * @param traceParents of the requests that the events come from, where this is not the request itself
 */
export function recordEventStatements(
  events: RecordedEvent[],
  traceParents?: (string | null)[],
): [Statement, ...Statement[]] {
  // Without its row in messages nobody would ever send it.
  if (events.some(({ type }) => isMessageType(type))) throw new Error('a message is recorded by recordMessage')
  return outboxStatements(events, 0, traceParents)
}

/** Those of a message's event alone: `messages/message-recording.ts` adds the row of the message. */
export function recordMessageEventStatements(event: MessageEvent): Statement[] {
  return outboxStatements([event], 1)
}

function outboxStatements(
  events: RecordedEvent[],
  isMessage: 0 | 1,
  traceParents?: (string | null)[],
): [Statement, ...Statement[]] {
  return [
    {
      sql: `INSERT INTO unrouted_events (event_id, is_message) VALUES ${events.map(() => '(?, ?)').join(', ')}`,
      values: events.flatMap(({ id }) => [id, isMessage]),
    },
    ...eventStatements(events, isMessage, traceParents),
  ]
}

const COLUMNS = [
  ...['id', 'account_id', 'lab_id', 'type', 'subject_id', 'corporate_id', 'doctor_id', 'hospital_id', 'trace_parent'],
]
const INSERT_EVENTS = `INSERT INTO events (${COLUMNS.join(', ')}, recorded_at)`
const EVENT = COLUMNS.map((column) => (column === 'lab_id' ? `_ascii? COLLATE ascii_bin` : '?'))
const NAMED_EVENT = EVENT.map((value, n) => `${value} AS ${COLUMNS[n]}`)

function eventStatements(
  events: (RecordedEvent | TestEvent)[],
  isMessage: 0 | 1,
  traceParents = events.map(() => currentTraceParent()),
): Statement[] {
  const rows = events.map((event, n) => [
    event.id,
    event.accountId,
    event.labId,
    event.type,
    event.subjectId,
    event.corporateId,
    event.doctorId,
    event.hospitalId,
    traceParents[n],
  ])
  return [
    rows.length === 1 ? oneEvent(rows[0]!, events[0]!.labId) : manyEvents(rows),
    {
      sql: `INSERT INTO event_bodies (event_id, body, is_message) VALUES ${events.map(() => '(?, ?, ?)').join(', ')}`,
      values: events.flatMap(({ id, body }) => [id, body, isMessage]),
    },
  ]
}

/** Not as VALUES: a query in there would lock what it reads. */
function oneEvent(row: unknown[], labId: string): Statement {
  return { sql: `${INSERT_EVENTS} SELECT ${EVENT.join(', ')}, ${routingTime('?')}`, values: [...row, labId, labId] }
}

/** Says once how their times are found: a query for each takes the server twice as long, for one alone half as long. */
function manyEvents(rows: unknown[][]): Statement {
  const selects = rows.map((_, n) => `SELECT ${(n === 0 ? NAMED_EVENT : EVENT).join(', ')}`)
  return {
    sql: `${INSERT_EVENTS} SELECT e.*, ${routingTimeOfEach('e.lab_id')} FROM (${selects.join(' UNION ALL ')}) e`,
    values: rows.flat(),
  }
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
