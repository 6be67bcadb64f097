import type { Knex } from 'knex'
import { ID, TABLE, TIME, WORD } from '../column-types.ts'

/** Imports into a lab's catalogue: begun, filled, and then committed or discarded. The counts are those of the last validation; row_count is written when it ends, because its rows go then. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS catalogue_imports (
      id ${ID} NOT NULL PRIMARY KEY,
      account_id ${ID} NOT NULL,
      lab_id ${ID} NOT NULL,
      kind ${WORD} NOT NULL,
      state ${WORD} NOT NULL,
      row_count INT UNSIGNED NULL,
      refused INT UNSIGNED NULL,
      created INT UNSIGNED NULL,
      updated INT UNSIGNED NULL,
      created_at ${TIME} NOT NULL,
      ended_at ${TIME} NULL,
      KEY catalogue_imports_lab (lab_id, state, id)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS catalogue_imports')
}
