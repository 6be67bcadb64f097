import type { Knex } from 'knex'

/** Set while the lane's owner has not read settings again that changed then; who changed them waits for it. */
export async function up(knex: Knex): Promise<void> {
  if (await knex.schema.hasColumn('lanes', 'settings_changed_at')) return
  await knex.raw('ALTER TABLE lanes ADD COLUMN settings_changed_at DATETIME(3) NULL')
}

export async function down(knex: Knex): Promise<void> {
  if (!(await knex.schema.hasColumn('lanes', 'settings_changed_at'))) return
  await knex.raw('ALTER TABLE lanes DROP COLUMN settings_changed_at')
}
