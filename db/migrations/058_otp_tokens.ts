import type { Knex } from 'knex'
import { HASH, ID, TABLE, TIME } from '../column-types.ts'

/** What a patient brings back with a one-time password; only its hash is stored. Several can stand for one code. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS otp_tokens (
      token_hash ${HASH} NOT NULL PRIMARY KEY,
      contact_hash ${HASH} NOT NULL,
      code_id ${ID} NOT NULL,
      created_at ${TIME} NOT NULL,
      KEY otp_tokens_age (created_at)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS otp_tokens')
}
