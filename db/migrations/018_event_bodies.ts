import type { Knex } from 'knex'
import { ID, TABLE } from '../column-types.ts'

/** The exact bytes that every webhook gets and that the signature covers; never JSON, the server would rewrite it. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS event_bodies (
      event_id ${ID} NOT NULL PRIMARY KEY,
      body BLOB NOT NULL
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS event_bodies')
}
