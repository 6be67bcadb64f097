import type { Knex } from 'knex'
import { HASH, ID, TABLE, TIME, WORD } from '../column-types.ts'

/** Keys of the lab's own systems and staff. account_id null: all accounts. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS operator_keys (
      id ${ID} NOT NULL PRIMARY KEY,
      key_hash ${HASH} NOT NULL,
      name VARCHAR(200) NOT NULL,
      role ${WORD} NOT NULL,
      account_id ${ID} NULL,
      created_at ${TIME} NOT NULL,
      revoked_at ${TIME} NULL,
      UNIQUE KEY operator_keys_hash (key_hash)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS operator_keys')
}
