import type { Knex } from 'knex'
import { ID, TABLE, TIME, WORD } from '../column-types.ts'

/** Reports of patients; their files are kept apart, under the report's id. tests: names, as they stand in the report. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS reports (
      id ${ID} NOT NULL PRIMARY KEY,
      account_id ${ID} NOT NULL,
      lab_id ${ID} NOT NULL,
      patient_id ${ID} NOT NULL,
      version INT UNSIGNED NOT NULL DEFAULT 1,
      status ${WORD} NOT NULL,
      report_date ${TIME} NOT NULL,
      tests JSON NOT NULL,
      created_at ${TIME} NOT NULL,
      updated_at ${TIME} NOT NULL,
      KEY reports_patient (patient_id, lab_id, report_date),
      KEY reports_lab (lab_id, id)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS reports')
}
