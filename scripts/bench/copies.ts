/**
 * A backlog that the database server writes itself: a million copies in some ten seconds.
 */
import type { Database } from '../../db/connection.ts'
import type { Clock } from '../../src/clock.ts'

const COPIES_A_STATEMENT = 50_000

/** Where, whose and when. */
interface OfCopies {
  database: Database
  clock: Pick<Clock, 'now'>
  accountId: string
  labId: string
}

/** So many due copies with their events, the webhooks in turn. Ids and order are the same each time. No lane is due for them yet. */
export async function addCopies(world: OfCopies, webhookIds: string[], copies: number, body: string): Promise<void> {
  const dueAt = world.clock.now()
  const places = webhookIds.map(() => 'SELECT ? AS n, ? AS id').join(' UNION ALL ')
  for (let from = 0; from < copies; from += COPIES_A_STATEMENT) {
    const until = Math.min(copies, from + COPIES_A_STATEMENT) - 1
    const ids = `WITH RECURSIVE n (n) AS (SELECT ${from} UNION ALL SELECT n + 1 FROM n WHERE n < ${until})
      SELECT n, CONCAT('0waiting', LPAD(n, 18, '0')) AS id FROM n`
    // The servers take different words for the depth; both let a session raise it.
    await world.database.knex.transaction(async (trx) => {
      const [[row]] = await trx.raw('SELECT VERSION() AS version')
      const depth = /mariadb/i.test(row.version) ? 'max_recursive_iterations' : 'cte_max_recursion_depth'
      await trx.raw(`SET SESSION ${depth} = ${COPIES_A_STATEMENT}`)
      await trx.raw(`INSERT INTO event_bodies (event_id, body) SELECT x.id, ? FROM (${ids}) x`, [body])
      await trx.raw(
        `INSERT INTO events (id, account_id, lab_id, type, recorded_at, subject_id)
         SELECT x.id, ?, ?, 'lead.created', UTC_TIMESTAMP(6), x.id FROM (${ids}) x`,
        [world.accountId, world.labId],
      )
      await trx.raw(
        `INSERT INTO delivery_queue (webhook_id, due_at, event_id, attempts, epoch)
         SELECT CONVERT(w.id USING ascii), ?, x.id, 0, 1 FROM (${ids}) x JOIN (${places}) w ON w.n = x.n % ${webhookIds.length}`,
        [dueAt, ...webhookIds.flatMap((id, n) => [n, id])],
      )
    })
  }
}
