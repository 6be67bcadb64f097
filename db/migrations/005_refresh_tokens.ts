import type { Knex } from 'knex'
import { HASH, ID, TABLE, TIME } from '../column-types.ts'

/** Only the hash is stored. rotated_at is set once, under the row's lock: the one who sets it wins the race. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS refresh_tokens (
      token_hash ${HASH} NOT NULL PRIMARY KEY,
      family_id ${ID} NOT NULL,
      issued_at ${TIME} NOT NULL,
      expires_at ${TIME} NOT NULL,
      rotated_at ${TIME} NULL,
      KEY refresh_tokens_family (family_id),
      KEY refresh_tokens_expiry (expires_at)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS refresh_tokens')
}
