import type { Knex } from 'knex'
import { ID, TABLE, WORD } from '../column-types.ts'

/** Which events a webhook subscribes to; the index is what routing joins on. position keeps the order in which they were sent. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS webhook_events (
      webhook_id ${ID} NOT NULL,
      event_type ${WORD} NOT NULL,
      lab_id ${ID} NOT NULL,
      position TINYINT UNSIGNED NOT NULL DEFAULT 0,
      PRIMARY KEY (webhook_id, event_type),
      KEY webhook_events_routing (lab_id, event_type, webhook_id)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS webhook_events')
}
