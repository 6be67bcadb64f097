import type { Knex } from 'knex'
import { ID, MONEY, TABLE, TIME, WORD } from '../column-types.ts'

/** CRM entries: leads and bookings. details holds the descriptive fields that no rule reads. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS entries (
      id ${ID} NOT NULL PRIMARY KEY,
      account_id ${ID} NOT NULL,
      lab_id ${ID} NOT NULL,
      version INT UNSIGNED NOT NULL DEFAULT 1,
      phase ${WORD} NOT NULL,
      integrator_id TEXT NOT NULL,
      first_name TEXT NOT NULL,
      last_name TEXT NULL,
      contact VARCHAR(10) NULL,
      email TEXT NULL,
      corporate_id ${ID} NULL,
      doctor_id ${ID} NULL,
      hospital_id ${ID} NULL,
      booking_type ${WORD} NULL,
      scheduled_at ${TIME} NULL,
      booking_status ${WORD} NULL,
      payment_status ${WORD} NULL,
      payment_method ${WORD} NULL,
      converted_at ${TIME} NULL,
      assigned_to ${ID} NULL,
      phlebotomist_id ${ID} NULL,
      discount_amount ${MONEY} NULL,
      total_amount ${MONEY} NULL,
      details JSON NOT NULL,
      created_at ${TIME} NOT NULL,
      updated_at ${TIME} NOT NULL,
      KEY entries_account (account_id, id),
      KEY entries_lab_schedule (lab_id, scheduled_at),
      KEY entries_contact (account_id, contact)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS entries')
}
