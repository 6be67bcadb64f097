/**
 * Column types that every migration shares. Plain words of SQL that MySQL 8+ and MariaDB 10.6+ both take.
 */

/** A ULID in lower case. `ascii_bin` compares by bytes; `findIdShape` keeps everything else out of the SQL. */
export const ID = 'CHAR(26) CHARACTER SET ascii COLLATE ascii_bin'

/** A closed set of words such as a state or an event name. */
export const WORD = 'VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin'

/** SHA-256 of a secret or of a value that must not be stored as it is. */
export const HASH = 'BINARY(32)'

export const MONEY = 'DECIMAL(12,2)'

/** A point in time in UTC, in milliseconds. */
export const TIME = 'DATETIME(3)'

/** Written by the database's own clock, for routing only (which webhooks were active when an event was recorded). */
export const ROUTING_TIME = 'DATETIME(6)'

/** With the row format named: that of a server may be an older one, in which keys of text are too long. */
export const TABLE = 'ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin'
