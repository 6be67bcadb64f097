import type { Knex } from 'knex'
import { ID, MONEY, TABLE } from '../column-types.ts'

/** What a test or a package costs under a rate list; without a row the lab's standard price counts. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS rate_list_prices (
      account_id ${ID} NOT NULL,
      rate_list_type VARCHAR(200) NOT NULL,
      item_id ${ID} NOT NULL,
      price ${MONEY} NOT NULL,
      PRIMARY KEY (account_id, rate_list_type, item_id)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS rate_list_prices')
}
