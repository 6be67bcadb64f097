/**
 * What there is to do, for a daemon's tick: both reads in one round trip, by index, whatever waits behind them.
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
}

export async function findWork(knex: Knex, now: Date, maxLanes: number): Promise<Work> {
  const [rows] = await knex.raw(
    `(SELECT NULL AS webhook_id, 0 AS failing FROM unrouted_events LIMIT 1)
     UNION ALL
     (SELECT l.webhook_id, w.first_failure_at IS NOT NULL FROM lanes l FORCE INDEX (lanes_due) STRAIGHT_JOIN webhooks w ON w.id = l.webhook_id
      WHERE l.owner IS NULL AND l.due_at <= ? ORDER BY l.due_at LIMIT ?)`,
    [now, maxLanes],
  )
  const lanes = (rows as { webhook_id: string | null; failing: number }[]).filter((row) => row.webhook_id !== null)
  return {
    unrouted: rows.length > lanes.length,
    dueLanes: lanes.map((row) => ({ webhookId: row.webhook_id!, failing: row.failing === 1 })),
  }
}
