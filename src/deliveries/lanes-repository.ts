/**
 * Rows of `lanes`: one a webhook, owned by at most one daemon. Every write but the taking is guarded by the owner's token.
 */
import type { Knex } from 'knex'
import type { BatchResult, Send, Statement } from '../../db/batch.ts'

/** An owner starts no attempt on a view of its lane that was read longer ago than this, in milliseconds (monotonic). */
export const LANE_VIEW_MAX_AGE_MS = 750

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
  /** Somebody waits until the settings that changed then are read. */
  settingsChangedAt: Date | null
  /** Rises when somebody else takes a copy out of the queue, or gives it another time. */
  queueMoves: number
}

/** What `readOwned` reads, of `lanes l` and `webhooks w`. */
export const STATE_COLUMNS = [
  'l.webhook_id',
  'l.eager_until',
  'l.clean_epoch',
  'l.settings_changed_at',
  'l.queue_moves',
  'w.state',
  'w.epoch',
  'w.first_failure_at',
  'w.updated_at',
]

/**
 * Takes those of these lanes that nobody owns, by the primary key, in its order, as everybody locks lanes; and reads those that
 * are this daemon's now, for `readOwned`.
 */
export function takeStatements(webhookIds: string[], token: string): Statement[] {
  return [
    {
      sql: 'UPDATE lanes FORCE INDEX (PRIMARY) SET owner = ? WHERE webhook_id IN (?) AND owner IS NULL',
      values: [token, webhookIds],
    },
    ownedStatement(webhookIds, token),
  ]
}

/** Those of these lanes that are this daemon's, for `readOwned`. */
export function ownedStatement(webhookIds: string[], token: string): Statement {
  return {
    sql: `SELECT ${STATE_COLUMNS.join(', ')} FROM lanes l JOIN webhooks w ON w.id = l.webhook_id
          WHERE l.owner = ? AND l.webhook_id IN (?)`,
    values: [token, webhookIds],
  }
}

export function readOwned(rows: BatchResult): LaneState[] {
  return rows.map(toLaneState)
}

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
 * Gives lanes back with their due times raised to the smallest that waits. The lanes' rows are locked first and the queue is
 * read afterwards with a fresh view: a fan-out that commits in between has its rows seen here, one that commits later
 * waits for the row and lowers the due time after us. Either way nothing due is forgotten. The same for a deletion or a
 * reactivation that this owner has not seen: its old copies wait for a retry that may be hours away, and are to be discarded now;
 * and where there are none, that is to be written down. And for a recovery: what waits for its time is to be sent now, until a
 * lane has found that there is nothing left of it.
 * @param end `COMMIT` where the caller's transaction leaves that to it
 */
export async function settleLanes(
  send: Send,
  webhookIds: string[],
  token: string,
  end: Statement[] = [],
): Promise<void> {
  await send([
    {
      sql: `SELECT webhook_id FROM lanes FORCE INDEX (PRIMARY) WHERE webhook_id IN (?) AND owner = ?
            ORDER BY webhook_id FOR UPDATE`,
      values: [webhookIds, token],
    },
    { sql: SETTLE, values: [webhookIds, token] },
    ...end,
  ])
}

/** By a further statement than the one that locks: its view of the queue is from behind that. It locks neither queue nor webhooks. */
const SETTLE = `UPDATE lanes FORCE INDEX (PRIMARY) SET due_at = ${settledDueAt()}, owner = NULL WHERE webhook_id IN (?) AND owner = ?`

function settledDueAt(): string {
  const next = `(SELECT q.due_at FROM delivery_queue q WHERE q.webhook_id = lanes.webhook_id ORDER BY q.due_at, q.event_id LIMIT 1)`
  return `CASE
    WHEN clean_epoch < (SELECT w.epoch FROM webhooks w WHERE w.id = lanes.webhook_id) THEN due_at
    WHEN eager_until IS NOT NULL THEN IF(${next} IS NULL, NULL, due_at)
    ELSE ${next} END`
}

/** Gives lanes back as they are: each is still due as it was when it was taken, and its next owner settles it. */
export async function freeLanes(knex: Knex, webhookIds: string[], token: string): Promise<void> {
  await knex.raw('UPDATE lanes FORCE INDEX (PRIMARY) SET owner = NULL WHERE webhook_id IN (?) AND owner = ?', [
    webhookIds,
    token,
  ])
}

/** For a transaction that locks more of the webhook's: behind the webhook's row and before its messages. */
export async function lockLane(trx: Knex.Transaction, webhookId: string): Promise<void> {
  await trx('lanes').where({ webhook_id: webhookId }).forUpdate().first('webhook_id')
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

/**
 * Says that copies which are not recorded as ended go from these lanes' queues, or are due at another time: a recorder that counts on
 * what it has read looks at each again. In the transaction that changes the queues, and before it does: the lanes' locks come first.
 */
export function queueMovedStatement(webhookIds: string[]): Statement {
  return {
    sql: 'UPDATE lanes FORCE INDEX (PRIMARY) SET queue_moves = queue_moves + 1 WHERE webhook_id IN (?) ORDER BY webhook_id',
    values: [webhookIds],
  }
}

/**
 * Asks the lane's owner to read the webhook's settings again; without an owner there is nobody to ask, and the next one reads
 * them fresh. The row's lock decides which: a daemon that takes the lane at this moment does so before or after the caller's
 * commit, and is asked, or reads what was committed.
 */
export async function askToReadSettings(trx: Knex.Transaction, webhookId: string, changedAt: Date): Promise<void> {
  await trx('lanes').where({ webhook_id: webhookId }).whereNotNull('owner').update({ settings_changed_at: changedAt })
}

/** @returns false when no owner works with settings from before the change any more */
export async function settingsAreUnread(knex: Knex, webhookId: string): Promise<boolean> {
  const row = await knex('lanes')
    .where({ webhook_id: webhookId })
    .whereNotNull('owner')
    .whereNotNull('settings_changed_at')
    .first('webhook_id')
  return row !== undefined
}

/** The owner has read them. A change that came after that reading stands. */
export async function confirmSettingsRead(knex: Knex, lanes: LaneState[], token: string): Promise<void> {
  await knex.raw(
    `UPDATE lanes FORCE INDEX (PRIMARY) SET settings_changed_at = NULL
     WHERE webhook_id IN (?) AND owner = ? AND (webhook_id, settings_changed_at) IN (${lanes.map(() => '(?, ?)').join(', ')})`,
    [
      lanes.map(({ webhookId }) => webhookId),
      token,
      ...lanes.flatMap(({ webhookId, settingsChangedAt }) => [webhookId, settingsChangedAt!]),
    ],
  )
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
    settingsChangedAt: row.settings_changed_at as Date | null,
    queueMoves: Number(row.queue_moves),
  }
}
