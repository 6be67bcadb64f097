import type { Knex } from 'knex'
import { ID, TABLE, TIME } from '../column-types.ts'

/** One sign-in and all its rotations; revoked as a whole when a rotated token comes back. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS refresh_token_families (
      id ${ID} NOT NULL PRIMARY KEY,
      client_id ${ID} NOT NULL,
      account_id ${ID} NOT NULL,
      created_at ${TIME} NOT NULL,
      revoked_at ${TIME} NULL
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS refresh_token_families')
}
