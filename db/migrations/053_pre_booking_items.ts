import type { Knex } from 'knex'
import { ID, MONEY, TABLE, WORD } from '../column-types.ts'

/** Tests and packages of a pre-booking with their price on that day. item_id and price null: unmapped, for staff to resolve; tests: the names that an unmapped package came with. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS pre_booking_items (
      pre_booking_id ${ID} NOT NULL,
      position SMALLINT UNSIGNED NOT NULL,
      kind ${WORD} NOT NULL,
      item_id ${ID} NULL,
      name TEXT NOT NULL,
      price ${MONEY} NULL,
      tests JSON NULL,
      PRIMARY KEY (pre_booking_id, position)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS pre_booking_items')
}
