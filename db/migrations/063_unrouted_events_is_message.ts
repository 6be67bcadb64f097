import type { Knex } from 'knex'

/** 1: a message, which is routed by rules of its own. Asks first: MySQL has no ADD COLUMN IF NOT EXISTS. */
export async function up(knex: Knex): Promise<void> {
  if (await knex.schema.hasColumn('unrouted_events', 'is_message')) return
  await knex.raw('ALTER TABLE unrouted_events ADD COLUMN is_message TINYINT UNSIGNED NOT NULL DEFAULT 0')
}

export async function down(knex: Knex): Promise<void> {
  if (!(await knex.schema.hasColumn('unrouted_events', 'is_message'))) return
  await knex.raw('ALTER TABLE unrouted_events DROP COLUMN is_message')
}
