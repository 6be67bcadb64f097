/**
 * What waits, for the metrics: read by index when somebody asks, and not again for a few seconds.
 */
import type { Knex } from 'knex'
import { timeOfId } from './ids.ts'

export interface Backlog {
  /** Age of the delivery that is due the longest, in seconds; 0: nothing is due. */
  oldestDueSeconds: { healthy: number; retry: number }
  /** Age of the oldest event that waits for its fan-out, in seconds; 0: none waits. */
  oldestUnroutedSeconds: number
  activeWebhooks: number
  failingWebhooks: number
  mailsQueued: number
  messagesQueued: number
  smsQueued: number
}

/**
 * The due time of a lane is a level that its owner raises when it settles, so the queue itself is asked, at its head. Lanes of
 * webhooks that are gone only discard: nobody waits for them.
 */
const OLDEST_DUE = `
  SELECT w.first_failure_at IS NOT NULL AS failing,
    MIN((SELECT MIN(q.due_at) FROM delivery_queue q WHERE q.webhook_id = l.webhook_id)) AS due
  FROM lanes l JOIN webhooks w ON w.id = l.webhook_id
  WHERE l.due_at <= ? AND w.state = 'active' GROUP BY failing`

/** @param now the database's UTC time */
export async function readBacklog(knex: Knex, now: Date): Promise<Backlog> {
  const [due] = await knex.raw(OLDEST_DUE, [now])
  const [[counts]] = await knex.raw(
    `SELECT (SELECT MIN(event_id) FROM unrouted_events) AS unrouted,
       (SELECT COUNT(*) FROM webhooks WHERE state = 'active') AS active,
       (SELECT COUNT(*) FROM webhooks WHERE state = 'active' AND first_failure_at IS NOT NULL) AS failing,
       (SELECT COUNT(*) FROM mails WHERE due_at IS NOT NULL) AS mails,
       (SELECT COUNT(*) FROM messages WHERE due_at IS NOT NULL) AS messages,
       (SELECT COUNT(*) FROM sms_messages WHERE due_at IS NOT NULL AND expires_at > ?) AS sms`,
    [now],
  )
  const ageOf = (atMs: number | undefined) => (atMs === undefined ? 0 : Math.max(0, (now.getTime() - atMs) / 1000))
  const dueOf = (failing: number): number | undefined =>
    (due as { failing: number; due: Date | null }[]).find((row) => Number(row.failing) === failing)?.due?.getTime()
  return {
    oldestDueSeconds: { healthy: ageOf(dueOf(0)), retry: ageOf(dueOf(1)) },
    oldestUnroutedSeconds: counts.unrouted === null ? 0 : ageOf(timeOfId(counts.unrouted)),
    activeWebhooks: Number(counts.active),
    failingWebhooks: Number(counts.failing),
    mailsQueued: Number(counts.mails),
    messagesQueued: Number(counts.messages),
    smsQueued: Number(counts.sms),
  }
}
