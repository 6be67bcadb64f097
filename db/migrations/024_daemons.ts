import type { Knex } from 'knex'
import { ID, TABLE, TIME } from '../column-types.ts'

/** A living daemon raises beat each second; that is the only sign of life. token fences what it owns. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS daemons (
      token ${ID} NOT NULL PRIMARY KEY,
      beat BIGINT UNSIGNED NOT NULL DEFAULT 0,
      hint_host VARCHAR(64) NOT NULL,
      hint_port INT UNSIGNED NOT NULL,
      started_at ${TIME} NOT NULL
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS daemons')
}
