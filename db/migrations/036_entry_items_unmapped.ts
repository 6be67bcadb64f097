import type { Knex } from 'knex'

/**
 * The tag of what staff still have to resolve. Follows from item_id, so that the two can't disagree and it goes when the item is
 * resolved. RTRIM, because MariaDB takes no bare CHAR here: its padding depends on the session's sql_mode. Asks first: MySQL
 * has no ADD COLUMN IF NOT EXISTS.
 */
export async function up(knex: Knex): Promise<void> {
  if (await knex.schema.hasColumn('entry_items', 'unmapped')) return
  await knex.raw(
    'ALTER TABLE entry_items ADD COLUMN unmapped BOOLEAN GENERATED ALWAYS AS (RTRIM(item_id) IS NULL) VIRTUAL, ADD KEY entry_items_unmapped (unmapped, entry_id)',
  )
}

export async function down(knex: Knex): Promise<void> {
  if (!(await knex.schema.hasColumn('entry_items', 'unmapped'))) return
  await knex.raw('ALTER TABLE entry_items DROP KEY entry_items_unmapped, DROP COLUMN unmapped')
}
