import type { Knex } from 'knex'
import { ID, MONEY, TABLE, TIME, WORD } from '../column-types.ts'

/** Bills, made of an entry, of a pre-booking, or directly. A bill without a contact has no patient who could log in. A deleted one stays, and frees what it was made of. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS bills (
      id ${ID} NOT NULL PRIMARY KEY,
      account_id ${ID} NOT NULL,
      lab_id ${ID} NOT NULL,
      version INT UNSIGNED NOT NULL DEFAULT 1,
      status ${WORD} NOT NULL,
      integrator_id TEXT NULL,
      entry_id ${ID} NULL,
      pre_booking_id ${ID} NULL,
      patient_id ${ID} NULL,
      patient_name TEXT NOT NULL,
      contact VARCHAR(10) NULL,
      corporate_id ${ID} NULL,
      doctor_id ${ID} NULL,
      hospital_id ${ID} NULL,
      discount_amount ${MONEY} NULL,
      total_amount ${MONEY} NULL,
      created_at ${TIME} NOT NULL,
      completed_at ${TIME} NULL,
      deleted_at ${TIME} NULL,
      updated_at ${TIME} NOT NULL,
      KEY bills_account (account_id, id),
      KEY bills_lab (lab_id, status, id),
      KEY bills_entry (entry_id),
      KEY bills_pre_booking (pre_booking_id)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS bills')
}
