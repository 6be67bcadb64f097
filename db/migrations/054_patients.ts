import type { Knex } from 'knex'
import { ID, TABLE, TIME } from '../column-types.ts'

/** Patients of an account. Several can share one contact: a family. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS patients (
      id ${ID} NOT NULL PRIMARY KEY,
      account_id ${ID} NOT NULL,
      contact VARCHAR(10) NOT NULL,
      name TEXT NOT NULL,
      created_at ${TIME} NOT NULL,
      KEY patients_contact (account_id, contact)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS patients')
}
