import type { Knex } from 'knex'
import { ID, TABLE, TIME, WORD } from '../column-types.ts'

/** Mails to lab admins: facts as they were when the mail was due, in the transaction that made it so. sent_at null: waiting. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS mails (
      id ${ID} NOT NULL PRIMARY KEY,
      kind ${WORD} NOT NULL,
      account_id ${ID} NOT NULL,
      webhook_id ${ID} NOT NULL,
      recipient VARCHAR(254) NOT NULL,
      lab_name VARCHAR(200) NOT NULL,
      endpoint VARCHAR(2048) NOT NULL,
      events VARCHAR(1024) NOT NULL,
      failing_since ${TIME} NOT NULL,
      failed_attempts INT UNSIGNED NOT NULL,
      last_error VARCHAR(200) NOT NULL,
      party_name VARCHAR(200) NULL,
      webhooks_on_url INT UNSIGNED NOT NULL,
      created_at ${TIME} NOT NULL,
      due_at ${TIME} NULL,
      tries INT UNSIGNED NOT NULL DEFAULT 0,
      sent_at ${TIME} NULL,
      KEY mails_due (due_at),
      KEY mails_webhook (webhook_id)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS mails')
}
