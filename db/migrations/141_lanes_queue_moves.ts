import type { Knex } from 'knex'

/** How often somebody else than the recorder has taken copies out of the lane's queue or given them another time. */
export async function up(knex: Knex): Promise<void> {
  if (await knex.schema.hasColumn('lanes', 'queue_moves')) return
  await knex.raw('ALTER TABLE lanes ADD COLUMN queue_moves INT UNSIGNED NOT NULL DEFAULT 0')
}

export async function down(knex: Knex): Promise<void> {
  if (!(await knex.schema.hasColumn('lanes', 'queue_moves'))) return
  await knex.raw('ALTER TABLE lanes DROP COLUMN queue_moves')
}
