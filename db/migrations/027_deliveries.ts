import type { Knex } from 'knex'
import { ID, TABLE, TIME, WORD } from '../column-types.ts'

/** Ended deliveries. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS deliveries (
      webhook_id ${ID} NOT NULL,
      event_id ${ID} NOT NULL,
      status ${WORD} NOT NULL,
      attempts SMALLINT UNSIGNED NOT NULL,
      ended_at ${TIME} NOT NULL,
      PRIMARY KEY (webhook_id, event_id),
      KEY deliveries_event (event_id),
      KEY deliveries_ended (ended_at)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS deliveries')
}
