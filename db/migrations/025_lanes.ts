import type { Knex } from 'knex'
import { ID, TABLE, TIME } from '../column-types.ts'

/** All pending deliveries of one webhook. owner is a daemon's token. due_at is a level with two writers (fan-out lowers, settling raises). */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS lanes (
      webhook_id ${ID} NOT NULL PRIMARY KEY,
      due_at ${TIME} NULL,
      owner ${ID} NULL,
      eager_until ${TIME} NULL,
      last_seq BIGINT UNSIGNED NOT NULL DEFAULT 0,
      KEY lanes_due (owner, due_at)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS lanes')
}
