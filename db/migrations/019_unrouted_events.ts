import type { Knex } from 'knex'
import { ID, TABLE } from '../column-types.ts'

/** Narrow queue of events that wait for their fan-out; a row goes in the transaction that writes its deliveries. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS unrouted_events (
      event_id ${ID} NOT NULL PRIMARY KEY
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS unrouted_events')
}
