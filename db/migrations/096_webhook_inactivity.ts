import type { Knex } from 'knex'
import { ID, ROUTING_TIME, TABLE } from '../column-types.ts'

/** Times in which a webhook was auto-deleted and that reactivation ended, half-open: its events of those times are never sent to it. The one that still lasts stands in webhooks. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS webhook_inactivity (
      webhook_id ${ID} NOT NULL,
      inactive_from ${ROUTING_TIME} NOT NULL,
      active_from ${ROUTING_TIME} NOT NULL,
      PRIMARY KEY (webhook_id, inactive_from)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS webhook_inactivity')
}
