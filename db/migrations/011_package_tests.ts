import type { Knex } from 'knex'
import { ID, TABLE } from '../column-types.ts'

/** Which tests a package contains, in order. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS package_tests (
      package_id ${ID} NOT NULL,
      position SMALLINT UNSIGNED NOT NULL,
      test_id ${ID} NOT NULL,
      PRIMARY KEY (package_id, position)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS package_tests')
}
