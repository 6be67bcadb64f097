import type { Knex } from 'knex'
import { ID, TABLE, TIME, WORD } from '../column-types.ts'

/**
 * Orders to send a webhook's ended copies again, each with how far it has come: from_id and until_id bound the events, and the
 * two positions are the last delivery and the last event that were looked at.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS recoveries (
      id ${ID} NOT NULL PRIMARY KEY,
      account_id ${ID} NOT NULL,
      lab_id ${ID} NOT NULL,
      webhook_id ${ID} NOT NULL,
      state ${WORD} NOT NULL,
      since_at ${TIME} NOT NULL,
      from_id ${ID} NOT NULL,
      until_id ${ID} NOT NULL,
      delivery_position ${ID} NULL,
      event_position ${ID} NULL,
      requeued INT UNSIGNED NOT NULL DEFAULT 0,
      skipped_messages INT UNSIGNED NOT NULL DEFAULT 0,
      skipped_expired INT UNSIGNED NOT NULL DEFAULT 0,
      missed INT UNSIGNED NOT NULL DEFAULT 0,
      created_at ${TIME} NOT NULL,
      updated_at ${TIME} NOT NULL,
      finished_at ${TIME} NULL,
      KEY recoveries_state (state, id),
      KEY recoveries_webhook (webhook_id, state)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS recoveries')
}
