import type { Knex } from 'knex'

/**
 * The epoch up to which the lane's old copies were discarded. Behind the webhook's epoch: old copies may wait for a retry
 * that is hours away, and are looked for before anything is sent.
 */
export async function up(knex: Knex): Promise<void> {
  if (await knex.schema.hasColumn('lanes', 'clean_epoch')) return
  await knex.raw('ALTER TABLE lanes ADD COLUMN clean_epoch INT UNSIGNED NOT NULL DEFAULT 1')
}

export async function down(knex: Knex): Promise<void> {
  if (!(await knex.schema.hasColumn('lanes', 'clean_epoch'))) return
  await knex.raw('ALTER TABLE lanes DROP COLUMN clean_epoch')
}
