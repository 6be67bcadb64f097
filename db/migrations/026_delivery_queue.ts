import type { Knex } from 'knex'
import { ID, TABLE, TIME } from '../column-types.ts'

/** Pending deliveries, clustered in the order a lane reads them; deleted when done. The unique key makes a second fan-out of an event impossible. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS delivery_queue (
      webhook_id ${ID} NOT NULL,
      due_at ${TIME} NOT NULL,
      event_id ${ID} NOT NULL,
      attempts SMALLINT UNSIGNED NOT NULL DEFAULT 0,
      epoch INT UNSIGNED NOT NULL,
      PRIMARY KEY (webhook_id, due_at, event_id),
      UNIQUE KEY delivery_queue_delivery (event_id, webhook_id)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS delivery_queue')
}
