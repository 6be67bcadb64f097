/**
 * The server's clock in SQL, in UTC: no other file names a function of it, so that all agree on zone and digits. One that said
 * NOW() would depend on the session's zone.
 */

/** When the statement began, to the microsecond. */
export const SERVER_TIME = 'UTC_TIMESTAMP(6)'

/** The same to the millisecond, as most columns keep it. */
export const SERVER_TIME_MS = 'UTC_TIMESTAMP(3)'

/**
 * When it is reached, for each row anew; and the server's own also where a session has set its timestamp. In the session's zone,
 * which is UTC. In small letters, as the server's own messages name it.
 */
export const TIME_WHEN_REACHED = 'sysdate(6)'

/** Microseconds since 1970. @param time one of those above */
export function microsecondsOf(time: string): string {
  return `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ${time})`
}

/** As a column `seconds`, with its milliseconds. UNIX_TIMESTAMP of it is right because the session's time zone is UTC. */
export const SELECT_SERVER_SECONDS = `SELECT UNIX_TIMESTAMP(${SERVER_TIME_MS}) AS seconds`
