import type { Knex } from 'knex'
import { ID, MONEY, TABLE } from '../column-types.ts'

/** A party's negotiated price of a package. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS party_package_prices (
      party_id ${ID} NOT NULL,
      package_id ${ID} NOT NULL,
      price ${MONEY} NOT NULL,
      PRIMARY KEY (party_id, package_id)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS party_package_prices')
}
