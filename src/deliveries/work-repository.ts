/**
 * What there is to do, for a daemon's tick: all reads in one round trip, by index, whatever waits behind them.
 */
import type { Knex } from 'knex'

export interface DueLane {
  webhookId: string
  failing: boolean
}

export interface Work {
  /** Events wait for their fan-out. */
  unrouted: boolean
  /** Lanes without an owner that have something due, the longest waiting first. */
  dueLanes: DueLane[]
  /** A recovery that was ordered has not ended. */
  recovering: boolean
}

/** What a row that is no lane says. */
const UNROUTED = 2
const RECOVERING = 3

export async function findWork(knex: Knex, now: Date, maxLanes: number): Promise<Work> {
  const [rows] = await knex.raw(
    `(SELECT NULL AS webhook_id, ${UNROUTED} AS says FROM unrouted_events LIMIT 1)
     UNION ALL
     (SELECT NULL, ${RECOVERING} FROM recoveries FORCE INDEX (recoveries_state) WHERE state = 'running' LIMIT 1)
     UNION ALL
     (SELECT l.webhook_id, w.first_failure_at IS NOT NULL FROM lanes l FORCE INDEX (lanes_due) STRAIGHT_JOIN webhooks w ON w.id = l.webhook_id
      WHERE l.owner IS NULL AND l.due_at <= ? ORDER BY l.due_at LIMIT ?)`,
    [now, maxLanes],
  )
  const found = rows as { webhook_id: string | null; says: number }[]
  const isSaid = (says: number) => found.some((row) => row.webhook_id === null && row.says === says)
  return {
    unrouted: isSaid(UNROUTED),
    recovering: isSaid(RECOVERING),
    dueLanes: found.flatMap((row) =>
      row.webhook_id === null ? [] : [{ webhookId: row.webhook_id, failing: row.says === 1 }],
    ),
  }
}

/**
 * Due lanes of webhooks that do not fail, without an owner, the longest waiting first. Walks over those that fail: thousands of
 * them would take the places of all others in `findWork`.
 */
export async function listDueHealthyLanes(knex: Knex, now: Date, maxLanes: number): Promise<DueLane[]> {
  const [rows] = await knex.raw(
    `SELECT l.webhook_id FROM lanes l FORCE INDEX (lanes_due) STRAIGHT_JOIN webhooks w ON w.id = l.webhook_id
     WHERE l.owner IS NULL AND l.due_at <= ? AND w.first_failure_at IS NULL ORDER BY l.due_at LIMIT ?`,
    [now, maxLanes],
  )
  return (rows as { webhook_id: string }[]).map((row) => ({ webhookId: row.webhook_id, failing: false }))
}
