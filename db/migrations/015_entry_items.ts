import type { Knex } from 'knex'
import { ID, MONEY, TABLE, WORD } from '../column-types.ts'

/** Tests and packages of an entry. item_id null: unmapped, for staff to resolve. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS entry_items (
      entry_id ${ID} NOT NULL,
      position SMALLINT UNSIGNED NOT NULL,
      kind ${WORD} NOT NULL,
      item_id ${ID} NULL,
      name TEXT NOT NULL,
      price ${MONEY} NULL,
      PRIMARY KEY (entry_id, position)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS entry_items')
}
