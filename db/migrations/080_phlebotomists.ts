import type { Knex } from 'knex'
import { ID, TABLE, TIME } from '../column-types.ts'

/** Who takes samples. One who is not active keeps the bookings that are assigned, and gets no more. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS phlebotomists (
      id ${ID} NOT NULL PRIMARY KEY,
      account_id ${ID} NOT NULL,
      name VARCHAR(200) NOT NULL,
      active BOOLEAN NOT NULL DEFAULT TRUE,
      created_at ${TIME} NOT NULL,
      KEY phlebotomists_account (account_id, id)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS phlebotomists')
}
