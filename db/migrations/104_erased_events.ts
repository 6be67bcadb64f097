import type { Knex } from 'knex'
import { ID, TABLE, TIME } from '../column-types.ts'

/** Events whose body an erasure has taken: they are not sent any more. settled_at null: a copy may still wait to be discarded. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS erased_events (
      event_id ${ID} NOT NULL PRIMARY KEY,
      erasure_id ${ID} NOT NULL,
      settled_at ${TIME} NULL,
      KEY erased_events_erasure (erasure_id, settled_at)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS erased_events')
}
