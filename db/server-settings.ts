/**
 * Settings of a server under which this service can't work, and which no session may change for itself: told at the start in a
 * sentence, not by each statement. The same variables on MySQL and MariaDB.
 */
import type { Knex } from 'knex'

const VARIABLES = ['binlog_format', 'innodb_page_size', 'log_bin']

/** With smaller ones a key has 768 bytes at most, less than one of a text needs. */
const SMALLEST_PAGE = 8192

/** @returns what to set on the server, a sentence each; none: it can be used */
export async function findServerSettingFaults(knex: Knex): Promise<string[]> {
  const [rows] = await knex.raw('SHOW GLOBAL VARIABLES WHERE Variable_name IN (?)', [VARIABLES])
  const values = new Map((rows as Record<string, string>[]).map((row) => [row.Variable_name!, row.Value!]))
  return serverSettingFaultsOf(values)
}

/** @param values of the server's variables, as it shows them */
export function serverSettingFaultsOf(values: Map<string, string>): string[] {
  const hasBinlog = /^(on|1)$/i.test(values.get('log_bin') ?? '')
  const pageSize = Number(values.get('innodb_page_size') ?? SMALLEST_PAGE)
  return [
    // InnoDB refuses every write at READ COMMITTED there.
    ...(hasBinlog && values.get('binlog_format')?.toUpperCase() === 'STATEMENT'
      ? [
          "the database's binary log can't take this service's writes: set binlog_format = ROW (or MIXED) on it (it is STATEMENT)",
        ]
      : []),
    ...(pageSize < SMALLEST_PAGE
      ? [
          `the database's pages are too small for the keys: it must be set up with innodb_page_size = 16k, or 8k at least (it is ${pageSize})`,
        ]
      : []),
  ]
}
