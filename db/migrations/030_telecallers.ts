import type { Knex } from 'knex'
import { ID, TABLE, TIME } from '../column-types.ts'

/** Staff who call leads back. An inactive one gets no further lead; its rows stay, because entries name it. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS telecallers (
      id ${ID} NOT NULL PRIMARY KEY,
      account_id ${ID} NOT NULL,
      name VARCHAR(200) NOT NULL,
      active BOOLEAN NOT NULL,
      created_at ${TIME} NOT NULL,
      KEY telecallers_account (account_id, active, id)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS telecallers')
}
