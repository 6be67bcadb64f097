import type { Knex } from 'knex'
import { HASH, ID, TABLE, TIME } from '../column-types.ts'

/** A contact of an account that asked for a one-time password, whether or not a patient has it. Its row is the lock under which everything about its codes is decided. The number itself is encrypted; its keyed hash finds it. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS otp_contacts (
      contact_hash ${HASH} NOT NULL PRIMARY KEY,
      account_id ${ID} NOT NULL,
      contact_sealed VARBINARY(128) NOT NULL,
      code_id ${ID} NULL,
      failures_in_row INT UNSIGNED NOT NULL DEFAULT 0,
      locked_until ${TIME} NULL,
      login_epoch INT UNSIGNED NOT NULL DEFAULT 0,
      created_at ${TIME} NOT NULL
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS otp_contacts')
}
