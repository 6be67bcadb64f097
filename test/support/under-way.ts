/**
 * Statements that a server works on, or that wait there.
 */
import type { Knex } from 'knex'

/** Whether one that begins so is under way in this connection's database: other tests have theirs on the same server. */
export async function isUnderWay(knex: Knex | Knex.Transaction, beginning: string): Promise<boolean> {
  const [[{ own }]] = await knex.raw('SELECT DATABASE() AS own')
  const [processes] = await knex.raw('SHOW FULL PROCESSLIST')
  return processes.some(
    ({ db, Info }: { db: string | null; Info: string | null }) => db === own && Info?.startsWith(beginning),
  )
}
