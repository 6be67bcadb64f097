/**
 * The row by which daemons agree on who purges, and when.
 */
import type { Knex } from 'knex'

const NAME = 'expired'

/**
 * Takes the purge that is due, until `leaseUntil`: of several daemons one. A crash leaves the lease, and after it the next
 * daemon goes on. Two that purge at once, after a lease that was too short, only skip each other's rows.
 * @param latest later than every time that is written here: a row beyond it is from a clock that was set back since
 */
export async function claimPurge(knex: Knex, now: Date, leaseUntil: Date, latest: Date): Promise<boolean> {
  if (await moveDue(knex, now, leaseUntil, latest)) return true
  if (await knex('purge_runs').where({ name: NAME }).first('name')) return false
  await knex('purge_runs').insert({ name: NAME, due_at: now }).onConflict().ignore()
  return moveDue(knex, now, leaseUntil, latest)
}

async function moveDue(knex: Knex, now: Date, leaseUntil: Date, latest: Date): Promise<boolean> {
  const changed: number = await knex('purge_runs')
    .where({ name: NAME })
    .where((due) => due.where('due_at', '<=', now).orWhere('due_at', '>', latest))
    .update({ due_at: leaseUntil })
  return changed === 1
}

/** The next purge, or, while one runs, when another daemon may take it for dead. */
export async function recordPurgeDue(knex: Knex, dueAt: Date): Promise<void> {
  await knex('purge_runs').where({ name: NAME }).update({ due_at: dueAt })
}
