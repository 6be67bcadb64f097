import type { Knex } from 'knex'
import { ID, TABLE } from '../column-types.ts'

/**
 * A value for each lab that every change of its tests, packages and their prices replaces by a new one, in the change's own
 * transaction. A lab without a row has had no change since this table came.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS catalogue_versions (
      lab_id ${ID} NOT NULL PRIMARY KEY,
      version ${ID} NOT NULL
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS catalogue_versions')
}
