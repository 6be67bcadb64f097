import type { Knex } from 'knex'
import { ID, TABLE, TIME, WORD } from '../column-types.ts'

/** What became of each `*.send` event; its content is the event's body. due_at null: not ours to send, or sent. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS messages (
      event_id ${ID} NOT NULL PRIMARY KEY,
      account_id ${ID} NOT NULL,
      lab_id ${ID} NOT NULL,
      state ${WORD} NOT NULL,
      created_at ${TIME} NOT NULL,
      decided_at ${TIME} NULL,
      due_at ${TIME} NULL,
      tries INT UNSIGNED NOT NULL DEFAULT 0,
      sent_at ${TIME} NULL,
      KEY messages_due (due_at, event_id)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS messages')
}
