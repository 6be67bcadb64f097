import type { Knex } from 'knex'
import { ID, TABLE } from '../column-types.ts'

/** Whose turn was last, one row an account that has telecallers. Its lock puts the account's automatic assignments in a row. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS telecaller_turns (
      account_id ${ID} NOT NULL PRIMARY KEY,
      last_telecaller_id ${ID} NULL
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS telecaller_turns')
}
