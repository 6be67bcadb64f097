import type { Knex } from 'knex'
import { ID, TABLE, TIME } from '../column-types.ts'

/** Signing secrets, AES-256-GCM with the webhook id as associated data. expires_at null: the current one. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS webhook_secrets (
      webhook_id ${ID} NOT NULL,
      id ${ID} NOT NULL,
      sealed VARBINARY(255) NOT NULL,
      created_at ${TIME} NOT NULL,
      expires_at ${TIME} NULL,
      PRIMARY KEY (webhook_id, id)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS webhook_secrets')
}
