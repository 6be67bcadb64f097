import type { Knex } from 'knex'

/** How many of the copy's attempts have come before their time, because its webhook had recovered, in pairs. */
export async function up(knex: Knex): Promise<void> {
  if (await knex.schema.hasColumn('delivery_queue', 'early_attempts')) return
  await knex.raw('ALTER TABLE delivery_queue ADD COLUMN early_attempts TINYINT UNSIGNED NOT NULL DEFAULT 0')
}

export async function down(knex: Knex): Promise<void> {
  if (!(await knex.schema.hasColumn('delivery_queue', 'early_attempts'))) return
  await knex.raw('ALTER TABLE delivery_queue DROP COLUMN early_attempts')
}
