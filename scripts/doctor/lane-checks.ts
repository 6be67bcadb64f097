/**
 * Lanes and the queue: what is due, who owns it, and whether everything that waits can be sent.
 */
import type { SqlCheck } from './finding.ts'

export const LANE_CHECKS: SqlCheck[] = [
  {
    check: 'lane_missing',
    sql: 'SELECT w.id FROM webhooks w LEFT JOIN lanes l ON l.webhook_id = w.id WHERE l.webhook_id IS NULL',
    subject: ['id'],
    sentence: ({ id }) => `webhook ${id} has no lane: nothing is ever sent to it`,
  },
  {
    check: 'lane_without_webhook',
    sql: 'SELECT l.webhook_id FROM lanes l LEFT JOIN webhooks w ON w.id = l.webhook_id WHERE w.id IS NULL',
    subject: ['webhook_id'],
    sentence: ({ webhook_id }) => `the lane of ${webhook_id} has no webhook`,
  },
  {
    check: 'lane_owned_by_nobody',
    sql: `SELECT l.webhook_id, l.owner FROM lanes l LEFT JOIN daemons d ON d.token = l.owner
          WHERE l.owner IS NOT NULL AND d.token IS NULL`,
    subject: ['webhook_id'],
    sentence: ({ webhook_id, owner }) =>
      `the lane of ${webhook_id} is owned by ${owner}, which is no daemon: nobody takes it`,
  },
  {
    // An earlier due time is harmless: somebody looks, and settles it. An owner keeps its own watch.
    check: 'lane_not_due',
    sql: `SELECT l.webhook_id, l.due_at, q.due FROM lanes l
          JOIN (SELECT webhook_id, MIN(due_at) AS due FROM delivery_queue GROUP BY webhook_id) q ON q.webhook_id = l.webhook_id
          WHERE l.owner IS NULL AND (l.due_at IS NULL OR l.due_at > q.due)`,
    subject: ['webhook_id'],
    sentence: ({ webhook_id, due_at, due }) =>
      `a delivery of ${webhook_id} is due at ${iso(due)}, its lane ${due_at === null ? 'never' : `only at ${iso(due_at)}`}`,
  },
  {
    check: 'lane_behind_its_attempts',
    sql: `SELECT l.webhook_id, l.last_seq, a.last FROM lanes l
          JOIN (SELECT webhook_id, MAX(seq) AS last FROM earlier_attempts GROUP BY webhook_id
                UNION ALL SELECT webhook_id, MAX(seq) FROM deliveries GROUP BY webhook_id) a ON a.webhook_id = l.webhook_id
          WHERE a.last > l.last_seq`,
    subject: ['webhook_id'],
    sentence: ({ webhook_id, last_seq, last }) =>
      `the lane of ${webhook_id} counts ${last_seq} attempts, ${last} are recorded`,
  },
  {
    check: 'lane_epoch_ahead',
    sql: `SELECT l.webhook_id, l.clean_epoch, w.epoch FROM lanes l JOIN webhooks w ON w.id = l.webhook_id
          WHERE l.clean_epoch > w.epoch`,
    subject: ['webhook_id'],
    sentence: ({ webhook_id, clean_epoch, epoch }) =>
      `the lane of ${webhook_id} is clean up to epoch ${clean_epoch}, the webhook is at ${epoch}: old copies are not discarded`,
  },
  {
    check: 'queued_without_webhook',
    sql: `SELECT q.webhook_id, q.event_id FROM delivery_queue q LEFT JOIN webhooks w ON w.id = q.webhook_id WHERE w.id IS NULL`,
    subject: ['webhook_id', 'event_id'],
    sentence: ({ webhook_id, event_id }) => `event ${event_id} waits for ${webhook_id}, which is no webhook`,
  },
  {
    check: 'queued_without_event',
    sql: `SELECT q.webhook_id, q.event_id FROM delivery_queue q LEFT JOIN events e ON e.id = q.event_id WHERE e.id IS NULL`,
    subject: ['webhook_id', 'event_id'],
    sentence: ({ webhook_id, event_id }) => `${event_id} waits for webhook ${webhook_id} and is no event`,
  },
  {
    check: 'queued_without_body',
    sql: `SELECT q.webhook_id, q.event_id FROM delivery_queue q LEFT JOIN event_bodies b ON b.event_id = q.event_id
          WHERE b.event_id IS NULL`,
    subject: ['webhook_id', 'event_id'],
    sentence: ({ webhook_id, event_id }) =>
      `event ${event_id} waits for webhook ${webhook_id} and has no body: it is never sent`,
  },
  {
    check: 'queued_epoch_ahead',
    sql: `SELECT q.webhook_id, q.event_id, q.epoch, w.epoch AS current FROM delivery_queue q
          JOIN webhooks w ON w.id = q.webhook_id WHERE q.epoch > w.epoch`,
    subject: ['webhook_id', 'event_id'],
    sentence: ({ webhook_id, event_id, epoch, current }) =>
      `event ${event_id} waits for webhook ${webhook_id} under epoch ${epoch}, the webhook is at ${current}`,
  },
  {
    check: 'queued_attempts_differ',
    sql: `SELECT * FROM (SELECT q.webhook_id, q.event_id, q.attempts,
            (SELECT MAX(a.n) FROM earlier_attempts a WHERE a.webhook_id = q.webhook_id AND a.event_id = q.event_id) AS made
          FROM delivery_queue q) counted WHERE made > attempts`,
    subject: ['webhook_id', 'event_id'],
    sentence: ({ webhook_id, event_id, attempts, made }) =>
      `event ${event_id} waits for webhook ${webhook_id} after ${attempts} attempts, ${made} are recorded: the next one can't be`,
  },
]

const iso = (at: Date) => at.toISOString()
