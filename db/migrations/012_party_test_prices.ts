import type { Knex } from 'knex'
import { ID, MONEY, TABLE } from '../column-types.ts'

/** A party's negotiated price of a test; without a row the standard cost counts. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS party_test_prices (
      party_id ${ID} NOT NULL,
      test_id ${ID} NOT NULL,
      cost ${MONEY} NOT NULL,
      PRIMARY KEY (party_id, test_id)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS party_test_prices')
}
