import type { Knex } from 'knex'
import { ID, TABLE, TIME } from '../column-types.ts'

/** Text messages, written in the transaction that made them due. content: recipient and text, encrypted, gone when they are sent or of no more use. due_at null: nothing is left to do. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS sms_messages (
      id ${ID} NOT NULL PRIMARY KEY,
      account_id ${ID} NOT NULL,
      content VARBINARY(1024) NULL,
      created_at ${TIME} NOT NULL,
      expires_at ${TIME} NOT NULL,
      due_at ${TIME} NULL,
      tries INT UNSIGNED NOT NULL DEFAULT 0,
      sent_at ${TIME} NULL,
      KEY sms_messages_due (due_at)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS sms_messages')
}
