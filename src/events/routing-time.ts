/**
 * The time by which routing tells what came first, an event or the beginning and the end of a webhook: the database's own clock,
 * but never earlier than what was noted for a webhook of the lab before. So the order holds also where that clock was set back,
 * or another server with a clock of its own took over.
 */
import type { Knex } from 'knex'
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
  const times = ['active_from', 'inactive_from'].map((column) => `COALESCE((${noted(column)}), UTC_TIMESTAMP(6))`)
  return `GREATEST(UTC_TIMESTAMP(6), ${times.join(', ')})`
}

/** Later than all that was noted for a webhook of the lab. */
const afterNoted = (lab: string) => `${routingTime(lab)} + INTERVAL 1 MICROSECOND`

/**
 * From when on a webhook gets its lab's events: later than all that was recorded before. That is also what waits for its fan-out since
 * before the clock was set back: its id is of a time that has not come again.
 * @returns as text: a date of this process has no microseconds. Not read within a change, which would lock what it reads
 */
export async function readBeginning(trx: Knex.Transaction, labId: string): Promise<string> {
  const [[{ seconds }]] = await trx.raw('SELECT UNIX_TIMESTAMP(UTC_TIMESTAMP(3)) AS seconds')
  const ahead = 'SELECT MAX(e.recorded_at) FROM events e FORCE INDEX (events_lab) WHERE e.lab_id = ? AND e.id > ?'
  const [[{ at }]] = await trx.raw(
    `SELECT CAST(GREATEST(${afterNoted('?')},
       COALESCE((${ahead}), UTC_TIMESTAMP(6)) + INTERVAL 1 MICROSECOND) AS CHAR) AS at`,
    [labId, labId, labId, firstIdOf(Math.round(Number(seconds) * 1000))],
  )
  return at
}

/**
 * When the webhook whose id is bound here ends, in an update of its row: later than all that was recorded before, so that what it
 * got until then counts as its own also where the clock is behind what was noted. The derived table lets the update read its
 * own table, without locks; its LIMIT keeps the server from merging it.
 */
export const ENDING_TIME = `(SELECT ended.at
  FROM (SELECT ${afterNoted('x.lab_id')} AS at FROM webhooks x WHERE x.id = ? LIMIT 1) ended)`
