import type { Knex } from 'knex'

/** 1: a test that somebody asked for. It is sent once and judges nothing. MySQL has no ADD COLUMN IF NOT EXISTS. */
export async function up(knex: Knex): Promise<void> {
  if (await knex.schema.hasColumn('delivery_queue', 'is_test')) return
  await knex.raw('ALTER TABLE delivery_queue ADD COLUMN is_test TINYINT UNSIGNED NOT NULL DEFAULT 0')
}

export async function down(knex: Knex): Promise<void> {
  if (!(await knex.schema.hasColumn('delivery_queue', 'is_test'))) return
  await knex.raw('ALTER TABLE delivery_queue DROP COLUMN is_test')
}
