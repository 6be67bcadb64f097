/**
 * The time by which routing tells what came first, an event or the beginning and the end of a webhook: the database's own clock,
 * but never earlier than what was noted for a webhook of the lab before. So the order holds also where that clock was set back,
 * or another server with a clock of its own took over.
 */

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

/** From when on a webhook gets its lab's events: later than all that was recorded before. */
export function beginningTime(lab: string): string {
  return `${routingTime(lab)} + INTERVAL 1 MICROSECOND`
}

/**
 * When the webhook whose id is bound here ends, in an update of its row: later than all that was recorded before, so that what it
 * got until then counts as its own also where the clock is behind what was noted. The derived table lets the update read its
 * own table, without locks; its LIMIT keeps the server from merging it.
 */
export const ENDING_TIME = `(SELECT ended.at
  FROM (SELECT ${beginningTime('x.lab_id')} AS at FROM webhooks x WHERE x.id = ? LIMIT 1) ended)`
