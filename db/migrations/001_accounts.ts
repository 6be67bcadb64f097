import type { Knex } from 'knex'
import { ID, TABLE, TIME, WORD } from '../column-types.ts'

/** An integrator's tenant. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS accounts (
      id ${ID} NOT NULL PRIMARY KEY,
      name VARCHAR(200) NOT NULL,
      mode ${WORD} NOT NULL,
      time_zone ${WORD} NOT NULL,
      admin_email VARCHAR(254) NOT NULL,
      created_at ${TIME} NOT NULL
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS accounts')
}
