import type { Knex } from 'knex'

/** When it was auto-deleted by the clock as it was then: `inactive_from` is later where the clock was behind what was noted. */
export async function up(knex: Knex): Promise<void> {
  if (await knex.schema.hasColumn('webhook_inactivity', 'deactivated_at')) return
  await knex.raw('ALTER TABLE webhook_inactivity ADD COLUMN deactivated_at DATETIME(3) NULL')
}

export async function down(knex: Knex): Promise<void> {
  if (!(await knex.schema.hasColumn('webhook_inactivity', 'deactivated_at'))) return
  await knex.raw('ALTER TABLE webhook_inactivity DROP COLUMN deactivated_at')
}
