import type { Knex } from 'knex'

/** An inactive test can't be ordered; a removed one is no longer in the catalogue, but what names it still finds its name. Asks first: MySQL has no ADD COLUMN IF NOT EXISTS. */
export async function up(knex: Knex): Promise<void> {
  if (await knex.schema.hasColumn('tests', 'active')) return
  await knex.raw(
    'ALTER TABLE tests ADD COLUMN active TINYINT(1) NOT NULL DEFAULT 1, ADD COLUMN removed_at DATETIME(3) NULL',
  )
}

export async function down(knex: Knex): Promise<void> {
  if (!(await knex.schema.hasColumn('tests', 'active'))) return
  await knex.raw('ALTER TABLE tests DROP COLUMN active, DROP COLUMN removed_at')
}
