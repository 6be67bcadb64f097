/**
 * What fails now: active webhooks whose last attempt failed, with what waits for them.
 */
import type { Knex } from 'knex'
import { firstIdOf, timeOfId } from '../ids.ts'

/** Rows of a backlog that are counted. */
export const BACKLOG_COUNTED = 10_000
/** Events of a lab that are looked at for the oldest that waits, where the backlog is longer than that. */
const EVENTS_LOOKED_AT = 10_000
/** The event whose delivery failed first was recorded that long before, at most: it waited for its turn. */
const BEFORE_FIRST_FAILURE_MS = 3_600_000

export interface FailingWebhook {
  id: string
  accountId: string
  labId: string
  corporateId: string | null
  organizationId: string | null
  endpoint: string
  events: string[]
  firstFailureAt: Date
  failedAttempts: number
  lastError: string
  warned: boolean
  /** Deliveries that wait, counted up to `BACKLOG_COUNTED`. */
  backlog: number
  backlogIsMore: boolean
  oldestEventAt: Date | null
  nextAttemptAt: Date | null
}

/** Where a page begins: behind this webhook. */
export interface FailingPosition {
  firstFailureAt: Date
  id: string
}

/**
 * The longest failing first.
 * @param accountId null: of every account
 */
export async function listFailingWebhooks(
  knex: Knex,
  accountId: string | null,
  after: FailingPosition | undefined,
  limit: number,
): Promise<FailingWebhook[]> {
  const rows = await knex('webhooks')
    .where({ state: 'active', ...(accountId === null ? {} : { account_id: accountId }) })
    .modify((query) => {
      if (!after) return void query.whereNotNull('first_failure_at')
      void query.where('first_failure_at', '>=', after.firstFailureAt).where((behind) => {
        void behind.where('first_failure_at', '>', after.firstFailureAt).orWhere('id', '>', after.id)
      })
    })
    .orderBy(['first_failure_at', 'id'])
    .limit(limit)
  const eventsOf = await listEvents(
    knex,
    rows.map((row: { id: string }) => row.id),
  )
  const failing: FailingWebhook[] = []
  // One after the other: each counts a bounded number of rows, and a page of them is not to hold the whole pool.
  for (const row of rows) failing.push({ ...toFailing(row, eventsOf), ...(await readBacklog(knex, row)) })
  return failing
}

async function listEvents(knex: Knex, webhookIds: string[]): Promise<Map<string, string[]>> {
  const rows = await knex('webhook_events').whereIn('webhook_id', webhookIds).orderBy(['webhook_id', 'position'])
  const events = new Map<string, string[]>()
  for (const row of rows) events.set(row.webhook_id, [...(events.get(row.webhook_id) ?? []), row.event_type])
  return events
}

type Backlog = Pick<FailingWebhook, 'backlog' | 'backlogIsMore' | 'oldestEventAt' | 'nextAttemptAt'>

async function readBacklog(knex: Knex, webhook: Record<string, any>): Promise<Backlog> {
  const [[counted]] = await knex.raw(
    `SELECT COUNT(*) AS backlog, MIN(event_id) AS oldest, MIN(due_at) AS due
     FROM (SELECT event_id, due_at FROM delivery_queue WHERE webhook_id = ? ORDER BY due_at, event_id LIMIT ?) some_rows`,
    [webhook.id, BACKLOG_COUNTED + 1],
  )
  const backlog = Math.min(Number(counted.backlog), BACKLOG_COUNTED)
  const backlogIsMore = Number(counted.backlog) > BACKLOG_COUNTED
  const oldest = backlogIsMore ? await findOldest(knex, webhook, counted.oldest) : counted.oldest
  // Its id tells when it was recorded; its row may be gone by now, or say a time to come after the clock was set back.
  const oldestEventAt = oldest === null ? null : new Date(timeOfId(oldest))
  return { backlog, backlogIsMore, oldestEventAt, nextAttemptAt: counted.due }
}

/**
 * The oldest event of a long backlog. Its first rows in order of due time need not have it: a copy that was tried already
 * waits for a later time than those that were never tried.
 * @param known the oldest of the rows that were counted
 */
async function findOldest(knex: Knex, webhook: Record<string, any>, known: string): Promise<string> {
  const fromId = firstIdOf(webhook.first_failure_at.getTime() - BEFORE_FIRST_FAILURE_MS)
  const [rows] = await knex.raw(
    `SELECT q.event_id FROM (SELECT id FROM events WHERE lab_id = ? AND id >= ? AND id < ? ORDER BY id LIMIT ?) e
     STRAIGHT_JOIN delivery_queue q ON q.event_id = e.id AND q.webhook_id = ? ORDER BY e.id LIMIT 1`,
    [webhook.lab_id, fromId, known, EVENTS_LOOKED_AT, webhook.id],
  )
  return rows[0]?.event_id ?? known
}

function toFailing(row: Record<string, any>, eventsOf: Map<string, string[]>): Omit<FailingWebhook, keyof Backlog> {
  return {
    id: row.id,
    accountId: row.account_id,
    labId: row.lab_id,
    corporateId: row.corporate_id,
    organizationId: row.organization_id,
    endpoint: row.endpoint,
    events: eventsOf.get(row.id) ?? [],
    firstFailureAt: row.first_failure_at,
    failedAttempts: row.failed_attempts,
    lastError: row.last_error,
    warned: row.warned_at !== null,
  }
}
