/**
 * Whether the database keeps what it has acknowledged when the power goes: an answer of this service is a promise only then.
 * The same variables on MySQL and MariaDB.
 */
import type { Knex } from 'knex'

const VARIABLES = ['innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin']

/** @returns what to set on the server, a sentence each; none: it is durable */
export async function findDurabilityFaults(knex: Knex): Promise<string[]> {
  const [rows] = await knex.raw('SHOW GLOBAL VARIABLES WHERE Variable_name IN (?)', [VARIABLES])
  const values = new Map((rows as Record<string, string>[]).map((row) => [row.Variable_name!, row.Value!]))
  return durabilityFaultsOf(values)
}

/** @param values of the server's variables, as it shows them */
export function durabilityFaultsOf(values: Map<string, string>): string[] {
  const flush = values.get('innodb_flush_log_at_trx_commit')
  const sync = values.get('sync_binlog')
  const hasBinlog = /^(on|1)$/i.test(values.get('log_bin') ?? '')
  return [
    ...(flush === undefined || flush === '1'
      ? []
      : [
          `the database loses acknowledged writes when the power goes: set innodb_flush_log_at_trx_commit = 1 on it (it is ${flush})`,
        ]),
    ...(hasBinlog && sync !== undefined && sync !== '1'
      ? [
          `the database's binary log loses acknowledged writes when the power goes: set sync_binlog = 1 on it (it is ${sync})`,
        ]
      : []),
  ]
}
