import type { Knex } from 'knex'
import { HASH, ID, TABLE, TIME } from '../column-types.ts'

/** One-time passwords that were sent, as keyed hashes. Only the one that otp_contacts names is alive; the others count for the limits of the day. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS otp_codes (
      id ${ID} NOT NULL PRIMARY KEY,
      contact_hash ${HASH} NOT NULL,
      code_hash ${HASH} NOT NULL,
      tries TINYINT UNSIGNED NOT NULL DEFAULT 0,
      sent_at ${TIME} NOT NULL,
      expires_at ${TIME} NOT NULL,
      used_at ${TIME} NULL,
      KEY otp_codes_sent (contact_hash, sent_at),
      KEY otp_codes_expiry (expires_at)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS otp_codes')
}
