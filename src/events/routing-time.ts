/**
 * The time by which routing tells what came first, an event or the beginning and the end of a webhook: the database's own clock,
 * but never earlier than what was noted for a webhook of the lab before. So the order holds also where that clock was set back,
 * or another server with a clock of its own took over.
 */
import type { Knex } from 'knex'
import { SELECT_SERVER_SECONDS, SERVER_TIME } from '../../db/server-time.ts'
import { firstIdOf } from '../ids.ts'

/** @param lab the lab's id in the statement around it, the same for all its rows or a column; it is named twice */
export function routingTime(lab: string): string {
  return timeAfter((column) => `SELECT MAX(r.${column}) FROM webhooks r WHERE r.lab_id = ${lab}`)
}

/**
 * The same where many rows are of many labs: read from the end of an index, where the server would walk over all webhooks of the
 * lab for a MAX.
 * @param lab a column in the columns' own collation, without which no index is found
 */
export function routingTimeOfEach(lab: string): string {
  return timeAfter(
    (column) => `SELECT r.${column} FROM webhooks r WHERE r.lab_id = ${lab} ORDER BY r.${column} DESC LIMIT 1`,
  )
}

function timeAfter(noted: (column: string) => string): string {
  const times = ['active_from', 'inactive_from'].map((column) => `COALESCE((${noted(column)}), ${SERVER_TIME})`)
  return `GREATEST(${SERVER_TIME}, ${times.join(', ')})`
}

/** What is given before it is recorded, by a clock that is followed once a second, may be so much older than its event. */
const ID_BEFORE_MS = 10_000

/** Ids behind it are of events that were recorded before a clock was set back, or a moment ago. */
const lastIdBefore = (nowMs: number) => firstIdOf(Math.max(0, nowMs - ID_BEFORE_MS))

/**
 * Later than all that was noted for a webhook of the lab, and than all that was recorded, which is told by the ids of a time that has
 * not come again. Beside the lab, which it names three times, it takes `lastIdBefore` as its last value.
 */
function afterAll(lab: string): string {
  const ahead = `SELECT MAX(e.recorded_at) FROM events e FORCE INDEX (events_lab) WHERE e.lab_id = ${lab} AND e.id > ?`
  return `GREATEST(${routingTime(lab)}, COALESCE((${ahead}), ${SERVER_TIME})) + INTERVAL 1 MICROSECOND`
}

/**
 * From when on a webhook gets its lab's events: later than all that was recorded before. Not within a change, which would lock what
 * it reads.
 * @returns as text: a date of this process has no microseconds
 */
export async function readBeginning(trx: Knex.Transaction, labId: string): Promise<string> {
  const [[{ seconds }]] = await trx.raw(SELECT_SERVER_SECONDS)
  const before = lastIdBefore(Math.round(Number(seconds) * 1000))
  const [[{ at }]] = await trx.raw(`SELECT CAST(${afterAll('?')} AS CHAR) AS at`, [labId, labId, labId, before])
  return at
}

/**
 * When a webhook ends, in an update of its row: later than all that was recorded before, so that what it got until then counts as its
 * own also where the clock is behind. The derived table lets the update read its own table, without locks; its LIMIT keeps the
 * server from merging it.
 */
export const ENDING_TIME = `(SELECT ended.at
  FROM (SELECT ${afterAll('x.lab_id')} AS at FROM webhooks x WHERE x.id = ? LIMIT 1) ended)`

/** The values that `ENDING_TIME` takes. @param now the database's UTC time */
export function endingTimeValues(webhookId: string, now: Date): string[] {
  return [lastIdBefore(now.getTime()), webhookId]
}
