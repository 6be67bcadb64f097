import type { Knex } from 'knex'
import { ID, TABLE } from '../column-types.ts'

/**
 * When the account's last CRM calls were accepted: 8 bytes each (microseconds since 1970 by the database's clock, big-endian),
 * the oldest first, zero for none yet. Always the same length, so that a call changes its row in place.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS crm_budgets (
      account_id ${ID} NOT NULL PRIMARY KEY,
      calls VARBINARY(4096) NOT NULL
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS crm_budgets')
}
