import type { Knex } from 'knex'
import { TIME, WORD } from '../column-types.ts'

/**
 * The last attempt of an ended delivery stands in its row: most need one attempt, and then one row is written instead of
 * two. `class` is NULL where all its attempts stand in the table of the earlier ones.
 */
export async function up(knex: Knex): Promise<void> {
  if (await knex.schema.hasColumn('deliveries', 'class')) return
  await knex.raw(`
    ALTER TABLE deliveries
      ADD COLUMN seq BIGINT UNSIGNED NULL,
      ADD COLUMN started_at ${TIME} NULL,
      ADD COLUMN duration_ms INT UNSIGNED NULL,
      ADD COLUMN class ${WORD} NULL,
      ADD COLUMN http_status SMALLINT UNSIGNED NULL,
      ADD COLUMN error VARCHAR(200) NULL,
      ADD COLUMN answer VARBINARY(1024) NULL`)
}

export async function down(knex: Knex): Promise<void> {
  if (!(await knex.schema.hasColumn('deliveries', 'class'))) return
  await knex.raw(`
    ALTER TABLE deliveries
      DROP COLUMN seq, DROP COLUMN started_at, DROP COLUMN duration_ms, DROP COLUMN class, DROP COLUMN http_status,
      DROP COLUMN error, DROP COLUMN answer`)
}
