import type { Knex } from 'knex'
import { ID, TABLE, TIME, WORD } from '../column-types.ts'

/** CRM settings of an account; without a row the defaults of the code hold. The lists are JSON arrays of strings. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS crm_settings (
      account_id ${ID} NOT NULL PRIMARY KEY,
      assign_strategy ${WORD} NOT NULL,
      custom_fields JSON NOT NULL,
      payment_gateways JSON NOT NULL,
      updated_at ${TIME} NOT NULL
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS crm_settings')
}
