import type { Knex } from 'knex'

/**
 * 1: a message. With the body, which a lane reads anyway, so that the recorder knows without a further look which results
 * concern a message. MySQL has no ADD COLUMN IF NOT EXISTS.
 */
export async function up(knex: Knex): Promise<void> {
  if (await knex.schema.hasColumn('event_bodies', 'is_message')) return
  await knex.raw('ALTER TABLE event_bodies ADD COLUMN is_message TINYINT UNSIGNED NOT NULL DEFAULT 0')
}

export async function down(knex: Knex): Promise<void> {
  if (!(await knex.schema.hasColumn('event_bodies', 'is_message'))) return
  await knex.raw('ALTER TABLE event_bodies DROP COLUMN is_message')
}
