import type { Knex } from 'knex'
import { HASH, ID, TABLE, TIME } from '../column-types.ts'

/** At most two valid secrets a client: the unique key over (client, slot) decides it, slot is null once revoked. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS client_secrets (
      id ${ID} NOT NULL PRIMARY KEY,
      client_id ${ID} NOT NULL,
      slot TINYINT UNSIGNED NULL,
      secret_hash ${HASH} NOT NULL,
      created_at ${TIME} NOT NULL,
      revoked_at ${TIME} NULL,
      UNIQUE KEY client_secrets_slot (client_id, slot)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS client_secrets')
}
