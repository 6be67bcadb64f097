import type { Knex } from 'knex'
import { ID, TABLE } from '../column-types.ts'

/** Which tests a package of an open import contains, by code, in order. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS catalogue_import_contents (
      import_id ${ID} NOT NULL,
      line INT UNSIGNED NOT NULL,
      position SMALLINT UNSIGNED NOT NULL,
      test_code VARCHAR(64) NOT NULL,
      PRIMARY KEY (import_id, line, position)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS catalogue_import_contents')
}
