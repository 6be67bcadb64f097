import type { Knex } from 'knex'
import { ID, TABLE, TIME } from '../column-types.ts'

/** A client ID belongs to one account; its secrets are rows of client_secrets. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS clients (
      client_id ${ID} NOT NULL PRIMARY KEY,
      account_id ${ID} NOT NULL,
      created_at ${TIME} NOT NULL,
      KEY clients_account (account_id)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS clients')
}
