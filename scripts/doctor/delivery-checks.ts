/**
 * Ended deliveries and attempts: the log agrees with itself. Each statement is one pass over a table that may be large.
 */
import type { SqlCheck } from './finding.ts'

const IS_TEST = `e.type = 'webhook.test'`

/** Of event `e` and webhook `w`: whether the webhook gets nothing of the kind, whenever it is. */
const NOT_FOR_IT = `(e.lab_id <> w.lab_id OR e.account_id <> w.account_id
  OR (NOT (${IS_TEST}) AND (
    NOT EXISTS (SELECT 1 FROM webhook_events s WHERE s.webhook_id = w.id AND s.event_type = e.type)
    OR (w.corporate_id IS NOT NULL AND (e.corporate_id IS NULL OR e.corporate_id <> w.corporate_id))
    OR (w.organization_id IS NOT NULL AND w.organization_id <> COALESCE(e.doctor_id, '')
      AND w.organization_id <> COALESCE(e.hospital_id, '')))))`

function wrongWebhook(table: 'deliveries' | 'delivery_queue'): SqlCheck {
  return {
    check: 'delivery_to_the_wrong_webhook',
    sql: `SELECT x.webhook_id, x.event_id FROM ${table} x
          JOIN events e ON e.id = x.event_id JOIN webhooks w ON w.id = x.webhook_id WHERE ${NOT_FOR_IT}`,
    subject: ['webhook_id', 'event_id'],
    sentence: ({ webhook_id, event_id }) =>
      `event ${event_id} has a delivery to webhook ${webhook_id}, which it is not for`,
  }
}

/** Nothing was routed to it then: a delivery of that time was made by hand, which no operation does. */
function missedEvent(table: 'deliveries' | 'delivery_queue'): SqlCheck {
  return {
    check: 'delivery_of_a_missed_event',
    sql: `SELECT x.webhook_id, x.event_id FROM webhook_inactivity i
          STRAIGHT_JOIN ${table} x ON x.webhook_id = i.webhook_id
          STRAIGHT_JOIN events e ON e.id = x.event_id AND e.recorded_at >= i.inactive_from AND e.recorded_at < i.active_from
          WHERE NOT (${IS_TEST})`,
    subject: ['webhook_id', 'event_id'],
    sentence: ({ webhook_id, event_id }) =>
      `event ${event_id} is of a time in which webhook ${webhook_id} was auto-deleted, and has a delivery to it`,
  }
}

export const DELIVERY_CHECKS: SqlCheck[] = [
  {
    check: ({ of_event }) => (of_event === null ? 'delivery_without_event' : 'delivery_without_webhook'),
    sql: `SELECT d.webhook_id, d.event_id, e.id AS of_event FROM deliveries d
          LEFT JOIN events e ON e.id = d.event_id LEFT JOIN webhooks w ON w.id = d.webhook_id
          WHERE e.id IS NULL OR w.id IS NULL`,
    subject: ['webhook_id', 'event_id'],
    sentence: ({ webhook_id, event_id, of_event }) =>
      of_event === null
        ? `the log of webhook ${webhook_id} has ${event_id}, which is no event`
        : `event ${event_id} is logged for ${webhook_id}, which is no webhook`,
  },
  {
    // The last attempt stands in the row itself; where its class is missing, all stand with the earlier ones. One that is
    // sent again has attempts that its row is told of at its next end.
    check: 'delivery_contradicts_its_attempts',
    sql: `SELECT * FROM (
            SELECT d.webhook_id, d.event_id, d.status, d.attempts, COALESCE(d.class, a.class) AS class,
              (d.class IS NOT NULL) + (SELECT COUNT(*) FROM earlier_attempts x WHERE x.webhook_id = d.webhook_id AND x.event_id = d.event_id) AS found
            FROM deliveries d
            LEFT JOIN earlier_attempts a ON d.class IS NULL AND a.webhook_id = d.webhook_id AND a.event_id = d.event_id
              AND a.n = d.attempts) l
          WHERE (attempts <> found OR (status = 'delivered' AND COALESCE(class, '') <> 'ok')
              OR (status = 'exhausted' AND class = 'ok'))
            AND NOT EXISTS (SELECT 1 FROM delivery_queue q WHERE q.event_id = l.event_id AND q.webhook_id = l.webhook_id)`,
    subject: ['webhook_id', 'event_id'],
    sentence: ({ webhook_id, event_id, status, attempts, class: outcome }) =>
      `the delivery of ${event_id} to webhook ${webhook_id} is ${status} after ${attempts} attempts, the last of them is ${outcome ?? 'not recorded'}`,
  },
  {
    check: ({ attempts }) => (attempts === null ? 'attempt_without_delivery' : 'delivery_contradicts_its_attempts'),
    sql: `SELECT a.webhook_id, a.event_id, a.n, d.attempts FROM earlier_attempts a
          LEFT JOIN deliveries d ON d.webhook_id = a.webhook_id AND d.event_id = a.event_id
          LEFT JOIN delivery_queue q ON q.event_id = a.event_id AND q.webhook_id = a.webhook_id
          WHERE q.event_id IS NULL AND (d.event_id IS NULL OR a.n > d.attempts)`,
    subject: ['webhook_id', 'event_id', 'n'],
    sentence: ({ webhook_id, event_id, n, attempts }) =>
      attempts === null
        ? `attempt ${n} of ${event_id} to webhook ${webhook_id} belongs to no delivery`
        : `attempt ${n} of ${event_id} to webhook ${webhook_id} is recorded, its delivery ended after ${attempts}`,
  },
  wrongWebhook('deliveries'),
  wrongWebhook('delivery_queue'),
  missedEvent('deliveries'),
  missedEvent('delivery_queue'),
  {
    check: 'recoveries_at_once',
    sql: `SELECT webhook_id, COUNT(*) AS n FROM recoveries WHERE state = 'running' GROUP BY webhook_id HAVING COUNT(*) > 1`,
    subject: ['webhook_id'],
    sentence: ({ webhook_id, n }) => `${n} recoveries of webhook ${webhook_id} run at once`,
  },
]
