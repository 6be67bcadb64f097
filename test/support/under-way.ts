/**
 * Statements that a server works on, or that wait there.
 */
import type { Knex } from 'knex'

/** Whether one that begins so is under way in this connection's database: other tests have theirs on the same server. */
export async function isUnderWay(knex: Knex | Knex.Transaction, beginning: string): Promise<boolean> {
  return (await statementsUnderWay(knex)).some((statement) => statement.startsWith(beginning))
}

/** Those of this connection's database. */
export async function statementsUnderWay(knex: Knex | Knex.Transaction): Promise<string[]> {
  const [[{ own }]] = await knex.raw('SELECT DATABASE() AS own')
  const [processes] = await knex.raw('SHOW FULL PROCESSLIST')
  return processes
    .filter(({ db, Info }: { db: string | null; Info: string | null }) => db === own && Info !== null)
    .map(({ Info }: { Info: string }) => Info)
}
