/**
 * Events: each has its body, and its deliveries are those that routing makes of it.
 */
import { isMessageIn } from '../../src/events/message-payloads.ts'
import { firstIdOf } from '../../src/ids.ts'
import type { Examined, SqlCheck } from './finding.ts'

const DAY_MS = 86_400_000

/** Kept for certain: the purge is not at the end of the time, nor in the middle of a batch. */
const firstIdWithin = ({ now }: Examined, days: number) => firstIdOf(Math.max(0, now.getTime() - (days - 1) * DAY_MS))

/** A call has four seconds for its statements. */
const REGISTRATION_SECONDS = 5

const IS_MESSAGE = isMessageIn('e.type')

export const EVENT_CHECKS: SqlCheck[] = [
  {
    check: 'event_without_body',
    sql: `SELECT e.id FROM events e LEFT JOIN event_bodies b ON b.event_id = e.id
          LEFT JOIN erased_events x ON x.event_id = e.id AND x.settled_at IS NOT NULL
          WHERE e.id >= ? AND b.event_id IS NULL AND x.event_id IS NULL`,
    values: (examined) => [firstIdWithin(examined, examined.payloadRetentionDays)],
    subject: ['id'],
    sentence: ({ id }) => `event ${id} has no body`,
  },
  {
    check: 'body_without_event',
    sql: `SELECT b.event_id FROM event_bodies b LEFT JOIN events e ON e.id = b.event_id WHERE e.id IS NULL`,
    subject: ['event_id'],
    sentence: ({ event_id }) => `there is a body of ${event_id}, which is no event`,
  },
  {
    check: 'unrouted_without_event',
    sql: `SELECT u.event_id FROM unrouted_events u LEFT JOIN events e ON e.id = u.event_id WHERE e.id IS NULL`,
    subject: ['event_id'],
    sentence: ({ event_id }) => `${event_id} waits for its fan-out and is no event`,
  },
  {
    // As routing decides it, once the registration has committed: an event that was fanned out before that knew nothing of it.
    // Messages have rules of their own, and a row of their own that says what became of them.
    check: 'event_not_fanned_out',
    sql: `SELECT e.id, w.id AS webhook_id FROM events e
          JOIN webhook_events s ON s.lab_id = e.lab_id AND s.event_type = e.type
          JOIN webhooks w ON w.id = s.webhook_id
          WHERE e.id >= ? AND NOT (${IS_MESSAGE})
            AND w.active_from + INTERVAL ? SECOND <= e.recorded_at AND (w.inactive_from IS NULL OR e.recorded_at < w.inactive_from)
            AND (w.corporate_id IS NULL OR w.corporate_id = e.corporate_id)
            AND (w.organization_id IS NULL OR w.organization_id = e.doctor_id OR w.organization_id = e.hospital_id)
            AND NOT EXISTS (SELECT 1 FROM unrouted_events u WHERE u.event_id = e.id)
            AND NOT EXISTS (SELECT 1 FROM delivery_queue q WHERE q.event_id = e.id AND q.webhook_id = w.id)
            AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.webhook_id = w.id AND d.event_id = e.id)`,
    values: (examined) => [
      firstIdWithin(examined, examined.logRetentionDays),
      examined.registrationSeconds ?? REGISTRATION_SECONDS,
    ],
    subject: ['id', 'webhook_id'],
    sentence: ({ id, webhook_id }) => `event ${id} was fanned out, and not to webhook ${webhook_id}, which it is for`,
  },
  {
    check: 'message_without_row',
    sql: `SELECT e.id FROM events e LEFT JOIN messages m ON m.event_id = e.id
          WHERE e.id >= ? AND ${IS_MESSAGE} AND m.event_id IS NULL`,
    values: (examined) => [firstIdWithin(examined, examined.logRetentionDays)],
    subject: ['id'],
    sentence: ({ id }) => `message ${id} has no row that says what becomes of it: nobody would ever send it`,
  },
  {
    check: 'message_without_event',
    sql: `SELECT m.event_id FROM messages m LEFT JOIN events e ON e.id = m.event_id WHERE e.id IS NULL`,
    subject: ['event_id'],
    sentence: ({ event_id }) => `there is a message ${event_id}, which is no event`,
  },
  {
    check: 'message_offered_to_nobody',
    sql: `SELECT m.event_id FROM messages m WHERE m.state = 'offered'
          AND NOT EXISTS (SELECT 1 FROM unrouted_events u WHERE u.event_id = m.event_id)
          AND NOT EXISTS (SELECT 1 FROM delivery_queue q WHERE q.event_id = m.event_id)`,
    subject: ['event_id'],
    sentence: ({ event_id }) => `message ${event_id} is offered, and no copy of it waits: nobody sends it`,
  },
  {
    check: 'message_waits_for_nothing',
    sql: `SELECT m.event_id, m.state FROM messages m
          WHERE (m.state = 'normal' AND m.due_at IS NULL AND m.sent_at IS NULL)
            OR (m.state <> 'normal' AND m.due_at IS NOT NULL)`,
    subject: ['event_id'],
    sentence: ({ event_id, state }) =>
      state === 'normal'
        ? `message ${event_id} goes the normal way, is not sent and not due`
        : `message ${event_id} is ${state}, and due at the gateway all the same`,
  },
]
