/**
 * The outbox: an event is three rows that are written in the transaction of the change that it tells of.
 */
import type { Knex } from 'knex'
import type { Statement } from '../../db/batch.ts'
import type { RecordedEvent, TestEvent } from './event-types.ts'

/**
 * The statements that record an event; they belong in the transaction of the business row, so that neither is there
 * without the other. `recorded_at` is the database's own clock in the statement (the session's time zone is UTC): routing
 * compares it with the times at which webhooks became active, taken from the same clock.
 */
export function recordEventStatements(event: RecordedEvent): Statement[] {
  return [...eventStatements(event), { sql: 'INSERT INTO unrouted_events (event_id) VALUES (?)', values: [event.id] }]
}

function eventStatements(event: RecordedEvent | TestEvent): Statement[] {
  return [
    {
      sql: `INSERT INTO events (id, account_id, lab_id, type, recorded_at, subject_id, corporate_id, doctor_id, hospital_id)
        VALUES (?, ?, ?, ?, UTC_TIMESTAMP(6), ?, ?, ?, ?)`,
      values: [
        event.id,
        event.accountId,
        event.labId,
        event.type,
        event.subjectId,
        event.corporateId,
        event.doctorId,
        event.hospitalId,
      ],
    },
    { sql: 'INSERT INTO event_bodies (event_id, body) VALUES (?, ?)', values: [event.id, event.body] },
  ]
}

/** The same within a transaction of knex. */
export async function recordEvent(trx: Knex.Transaction, event: RecordedEvent): Promise<void> {
  for (const { sql, values } of recordEventStatements(event)) await trx.raw(sql, values as Knex.RawBinding[])
}

/** A test goes to the one webhook that it is for: it waits for no fan-out, and the caller queues it. */
export async function recordTestEvent(trx: Knex.Transaction, event: TestEvent): Promise<void> {
  for (const { sql, values } of eventStatements(event)) await trx.raw(sql, values as Knex.RawBinding[])
}
