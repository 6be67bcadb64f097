import type { Knex } from 'knex'
import { HASH, ID, TABLE, TIME, WORD } from '../column-types.ts'

/** Keys that callers sent with a creating POST, each with its first answer. status and answer are null only inside the transaction that answers; answer is encrypted: it may hold a secret. The age is for the purge. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS idempotency_keys (
      account_id ${ID} NOT NULL,
      operation ${WORD} NOT NULL,
      key_hash ${HASH} NOT NULL,
      body_hash ${HASH} NOT NULL,
      status SMALLINT UNSIGNED NULL,
      answer MEDIUMBLOB NULL,
      created_at ${TIME} NOT NULL,
      PRIMARY KEY (account_id, operation, key_hash),
      KEY idempotency_keys_age (created_at)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS idempotency_keys')
}
