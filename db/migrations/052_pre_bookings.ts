import type { Knex } from 'knex'
import { HASH, ID, TABLE, TIME, WORD } from '../column-types.ts'

/** Pre-bookings that staff turn into bills. The barcode is unique over all accounts, by the hash of its bytes: it is longer than a key may be. Without a barcode the hash is null, which no key refuses. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS pre_bookings (
      id ${ID} NOT NULL PRIMARY KEY,
      account_id ${ID} NOT NULL,
      lab_id ${ID} NOT NULL,
      version INT UNSIGNED NOT NULL DEFAULT 1,
      status ${WORD} NOT NULL,
      integrator_id TEXT NOT NULL,
      first_name TEXT NOT NULL,
      last_name TEXT NULL,
      gender ${WORD} NOT NULL,
      age SMALLINT UNSIGNED NOT NULL,
      age_type ${WORD} NOT NULL,
      lead_source VARCHAR(200) NOT NULL,
      rate_list_type VARCHAR(200) NULL,
      doctor_id ${ID} NULL,
      hospital_id ${ID} NULL,
      barcode TEXT NULL,
      barcode_hash ${HASH} NULL,
      created_at ${TIME} NOT NULL,
      updated_at ${TIME} NOT NULL,
      UNIQUE KEY pre_bookings_barcode (barcode_hash),
      KEY pre_bookings_account (account_id, id),
      KEY pre_bookings_lab (lab_id, status, id)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS pre_bookings')
}
