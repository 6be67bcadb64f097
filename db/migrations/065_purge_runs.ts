import type { Knex } from 'knex'
import { TABLE, TIME, WORD } from '../column-types.ts'

/** When the next purge is due. Whoever moves it does that purge: of several daemons one. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS purge_runs (
      name ${WORD} NOT NULL PRIMARY KEY,
      due_at ${TIME} NOT NULL
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS purge_runs')
}
