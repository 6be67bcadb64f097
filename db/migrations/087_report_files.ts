import type { Knex } from 'knex'
import { HASH, ID, TABLE, TIME } from '../column-types.ts'

/** Files of reports, each stored under its id and never changed. Every version of a signed off report is kept; a file without a row here is what a crash left, and is removed. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS report_files (
      id ${ID} NOT NULL PRIMARY KEY,
      account_id ${ID} NOT NULL,
      report_id ${ID} NOT NULL,
      bytes INT UNSIGNED NOT NULL,
      sha256 ${HASH} NOT NULL,
      created_at ${TIME} NOT NULL,
      KEY report_files_report (report_id)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS report_files')
}
