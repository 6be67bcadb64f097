/**
 * Rows of `lanes`: one a webhook, owned by at most one daemon. Every write but the taking is guarded by the owner's token.
 */
import type { Knex } from 'knex'

/** @returns whether the lane is now this daemon's; false when another one was faster */
export async function takeLane(knex: Knex, webhookId: string, token: string): Promise<boolean> {
  const changed: number = await knex('lanes')
    .where({ webhook_id: webhookId })
    .whereNull('owner')
    .update({ owner: token })
  return changed === 1
}

export interface LaneState {
  webhookId: string
  state: string
  epoch: number
  /** Copies of the epochs before this one were discarded. */
  cleanEpoch: number
  failing: boolean
  eagerUntil: Date | null
  /** Moves when settings that a lane caches (endpoint, secrets) change. */
  updatedAt: Date
}

const STATE_COLUMNS = [
  'l.webhook_id',
  'l.eager_until',
  'l.clean_epoch',
  'w.state',
  'w.epoch',
  'w.first_failure_at',
  'w.updated_at',
]

/** State of every lane that this daemon owns, in one query. A lane that is missing here was lost. */
export async function listOwnedLanes(knex: Knex, token: string): Promise<LaneState[]> {
  const rows = await knex('lanes as l')
    .join('webhooks as w', 'w.id', 'l.webhook_id')
    .where('l.owner', token)
    .select(STATE_COLUMNS)
  return rows.map(toLaneState)
}

export async function findOwnedLane(knex: Knex, webhookId: string, token: string): Promise<LaneState | undefined> {
  const row = await knex('lanes as l')
    .join('webhooks as w', 'w.id', 'l.webhook_id')
    .where({ 'l.owner': token, 'l.webhook_id': webhookId })
    .first(STATE_COLUMNS)
  return row && toLaneState(row)
}

/**
 * Gives the lane back with its due time raised to the smallest that waits. The lane's row is locked first and the queue is
 * read afterwards with a fresh view: a fan-out that commits in between has its rows seen here, one that commits later
 * waits for the row and lowers the due time after us. Either way nothing due is forgotten.
 */
export async function settleLane(trx: Knex.Transaction, webhookId: string, token: string): Promise<void> {
  const owned = await trx('lanes').where({ webhook_id: webhookId, owner: token }).forUpdate().first('webhook_id')
  if (!owned) return
  const queue = await trx('delivery_queue')
    .where({ webhook_id: webhookId })
    .orderBy(['due_at', 'event_id'])
    .first('due_at')
  await trx('lanes')
    .where({ webhook_id: webhookId })
    .update({ due_at: queue?.due_at ?? null, owner: null })
}

/**
 * Lets a daemon look at the lane. After the rows that it is to find: a lane that settles at this moment holds the row, and
 * either has seen them or lets us lower what it wrote.
 */
export async function makeLaneDue(trx: Knex.Transaction, webhookId: string, now: Date): Promise<void> {
  await trx('lanes')
    .where({ webhook_id: webhookId })
    .update({ due_at: trx.raw('LEAST(COALESCE(due_at, ?), ?)', [now, now]) })
}

/** Clears a recovery's read-ahead once nothing waits any more behind it. */
export async function clearEager(knex: Knex, webhookId: string, token: string): Promise<void> {
  await knex('lanes').where({ webhook_id: webhookId, owner: token }).update({ eager_until: null })
}

function toLaneState(row: Record<string, unknown>): LaneState {
  return {
    webhookId: row.webhook_id as string,
    state: row.state as string,
    epoch: row.epoch as number,
    cleanEpoch: row.clean_epoch as number,
    failing: row.first_failure_at !== null,
    eagerUntil: row.eager_until as Date | null,
    updatedAt: row.updated_at as Date,
  }
}
