import type { Knex } from 'knex'
import { ID, TABLE, TIME, WORD } from '../column-types.ts'

/** Who did what when, of operators and staff. Append only. targets is JSON of ids, never of a patient's data. account_id is null where an action is about no account. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS audit_entries (
      id ${ID} NOT NULL,
      account_id ${ID} NULL,
      operator_key_id ${ID} NOT NULL,
      operation ${WORD} NOT NULL,
      targets VARCHAR(1000) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
      request_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
      created_at ${TIME} NOT NULL,
      PRIMARY KEY (id),
      KEY audit_entries_account (account_id, id)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS audit_entries')
}
