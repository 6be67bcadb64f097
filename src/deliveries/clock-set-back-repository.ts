/**
 * What waits for a time by a clock that was set back since. A backward jump of the database's clock would make it wait for as
 * much longer as the clock was set back; here it is moved back with the clock, so that it waits for what was left.
 */
import type { Knex } from 'knex'
import { COMMIT, type BatchPool, type Send } from '../../db/batch.ts'
import { SERVER_TIME_MS } from '../../db/server-time.ts'
import { queueMovedStatement } from './lanes-repository.ts'

/**
 * The row, beside the purge's, that keeps the latest time which the database's clock has shown: a daemon that comes up after
 * a jump sees it all the same, and of several one moves what waits.
 */
const MARK = 'clock'
/** Less is what clocks are set by all the time, and what the servers of a cluster differ by. */
const TOLERATED_SECONDS = 10
/** So many rows are moved in one statement, far within the time that a connection may be silent. */
const ROWS_A_STATEMENT = 10_000
const LANES_A_LOCK = 1000
/** Other things that wait for a time, each found by an index. */
const OTHERS = ['messages', 'mails', 'sms_messages']

/**
 * Notes the time that it is.
 * @returns false when a later time was noted already: the clock was set back, and what waits was not moved yet
 */
export async function noteClock(knex: Knex): Promise<boolean> {
  if (await raiseMark(knex)) return true
  await knex('purge_runs')
    .insert({ name: MARK, due_at: knex.raw(SERVER_TIME_MS) })
    .onConflict()
    .ignore()
  return raiseMark(knex)
}

async function raiseMark(knex: Knex): Promise<boolean> {
  const changed: number = await knex('purge_runs')
    .where({ name: MARK })
    .whereRaw(`due_at <= ${SERVER_TIME_MS} + INTERVAL ${TOLERATED_SECONDS} SECOND`)
    .update({ due_at: knex.raw(`GREATEST(due_at, ${SERVER_TIME_MS})`) })
  return changed === 1
}

export interface MovedBack {
  byMs: number
  /** Deliveries that wait for a further attempt, or had not been sent yet. */
  deliveries: number
}

/**
 * Moves all that waits, and the mark, in one transaction: whoever gets the mark's lock next finds nothing to do, and a crash
 * leaves everything to the next look. The mark is locked before the lanes; nobody locks them the other way round. A lane's
 * row keeps its recorder and its settling out while its queue is moved.
 * @param expectedMs the database's time now if it had not been set back, as far as that is known; the mark is some seconds old
 * @param newForMs what was attempted in this time may have been recorded by the clock as it is now, and stays
 * @returns undefined when the clock is right, or another daemon was first
 */
export function moveBackWithClock(
  batch: BatchPool,
  expectedMs: number | undefined,
  newForMs: number,
): Promise<MovedBack | undefined> {
  return batch.transaction(async (send) => {
    const [marks] = await send([
      {
        sql: `SELECT due_at AS seen, ${SERVER_TIME_MS} AS now FROM purge_runs WHERE name = ? FOR UPDATE`,
        values: [MARK],
      },
    ])
    const { seen, now } = marks![0] as { seen: Date; now: Date }
    if (seen.getTime() - now.getTime() <= TOLERATED_SECONDS * 1000) return undefined
    const byMs = Math.max(seen.getTime(), expectedMs ?? 0) - now.getTime()
    const deliveries = await moveDeliveries(send, { now, byMs, newFrom: new Date(now.getTime() - newForMs) })
    await send([
      ...OTHERS.map((table) => ({
        sql: `UPDATE ${table} SET due_at = due_at - INTERVAL ? MICROSECOND WHERE due_at > ?`,
        values: [byMs * 1000, now],
      })),
      { sql: 'UPDATE purge_runs SET due_at = ? WHERE name = ?', values: [now, MARK] },
      COMMIT,
    ])
    return { byMs, deliveries }
  })
}

interface Move {
  now: Date
  byMs: number
  newFrom: Date
}

async function moveDeliveries(send: Send, move: Move): Promise<number> {
  // One statement sees one moment: a lane that is given back between two would be in neither.
  const [lanes] = await send([
    {
      sql: `(SELECT webhook_id FROM lanes WHERE owner IS NULL AND due_at IS NOT NULL)
            UNION ALL (SELECT webhook_id FROM lanes WHERE owner >= '')`,
    },
  ])
  const ids = lanes!.map(({ webhook_id: id }) => id as string).sort()
  let moved = 0
  for (let from = 0; from < ids.length; from += LANES_A_LOCK) {
    const some = ids.slice(from, from + LANES_A_LOCK)
    await send([
      {
        // With a column that is not the key's: else the hint is in vain, as `db/locking.ts` says.
        sql: 'SELECT webhook_id, due_at FROM lanes FORCE INDEX (PRIMARY) WHERE webhook_id IN (?) ORDER BY webhook_id FOR UPDATE',
        values: [some],
      },
      queueMovedStatement(some),
    ])
    for (const id of some) moved += await moveQueue(send, id, move)
    await send([
      {
        sql: `UPDATE lanes FORCE INDEX (PRIMARY) SET due_at = due_at - INTERVAL ? MICROSECOND
              WHERE webhook_id IN (?) AND due_at > ?`,
        values: [move.byMs * 1000, some, move.now],
      },
    ])
  }
  return moved
}

/**
 * What was attempted by the clock as it is now stays; and with it what was attempted as long before the jump as the clock was
 * set back, to the seconds: the times alone can't tell the two apart.
 */
const NEWLY_ATTEMPTED = `SELECT 1 FROM earlier_attempts a
  WHERE a.webhook_id = q.webhook_id AND a.event_id = q.event_id AND a.n = q.attempts AND a.recorded_at > ? AND a.recorded_at <= ?`

/** From the earliest on, so that a row which was moved lies before what is still to be moved. */
async function moveQueue(send: Send, webhookId: string, { now, byMs, newFrom }: Move): Promise<number> {
  let moved = 0
  for (let after = now; ;) {
    const [lasts] = await send([
      {
        sql: `SELECT due_at FROM delivery_queue WHERE webhook_id = ? AND due_at > ?
              ORDER BY due_at LIMIT 1 OFFSET ${ROWS_A_STATEMENT - 1}`,
        values: [webhookId, after],
      },
    ])
    const last = lasts![0]
    const [changed] = await send([
      {
        sql: `UPDATE delivery_queue q SET q.due_at = q.due_at - INTERVAL ? MICROSECOND WHERE q.webhook_id = ?
              AND q.due_at > ? ${last ? 'AND q.due_at <= ?' : ''} AND NOT EXISTS (${NEWLY_ATTEMPTED})`,
        values: [byMs * 1000, webhookId, after, ...(last ? [last.due_at] : []), newFrom, now],
      },
    ])
    moved += changed!.affectedRows
    if (!last) return moved
    after = last.due_at
  }
}
