import type { Knex } from 'knex'
import { ID, TABLE, WORD } from '../column-types.ts'

/** Values that billing accepts, kept by the operator: lead sources and rate list types, in the order in which they are shown. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS operator_lists (
      account_id ${ID} NOT NULL,
      list ${WORD} NOT NULL,
      position SMALLINT UNSIGNED NOT NULL,
      value VARCHAR(200) NOT NULL,
      PRIMARY KEY (account_id, list, position)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS operator_lists')
}
