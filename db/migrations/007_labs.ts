import type { Knex } from 'knex'
import { ID, TABLE, TIME } from '../column-types.ts'

/** labID and branchID on the wire. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS labs (
      id ${ID} NOT NULL PRIMARY KEY,
      account_id ${ID} NOT NULL,
      name VARCHAR(200) NOT NULL,
      contact VARCHAR(32) NOT NULL,
      admin_email VARCHAR(254) NULL,
      active TINYINT(1) NOT NULL DEFAULT 1,
      created_at ${TIME} NOT NULL,
      KEY labs_account (account_id, id)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS labs')
}
