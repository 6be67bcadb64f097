import type { Knex } from 'knex'
import { ID, MONEY, TABLE, WORD } from '../column-types.ts'

/** Tests and packages of a bill. report_id: the one report that is to cover the item; null while there is none. tests: what the item means in a report, where that is not its own name. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS bill_items (
      bill_id ${ID} NOT NULL,
      position SMALLINT UNSIGNED NOT NULL,
      kind ${WORD} NOT NULL,
      item_id ${ID} NULL,
      name TEXT NOT NULL,
      price ${MONEY} NULL,
      tests JSON NULL,
      report_id ${ID} NULL,
      PRIMARY KEY (bill_id, position)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS bill_items')
}
