import type { Knex } from 'knex'
import { ID, TABLE, TIME, WORD } from '../column-types.ts'

/** Each HTTP request. seq is given under the lane's lock: the order for replaying a webhook's health. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS attempts (
      webhook_id ${ID} NOT NULL,
      event_id ${ID} NOT NULL,
      n SMALLINT UNSIGNED NOT NULL,
      seq BIGINT UNSIGNED NOT NULL,
      started_at ${TIME} NOT NULL,
      recorded_at ${TIME} NOT NULL,
      duration_ms INT UNSIGNED NOT NULL,
      class ${WORD} NOT NULL,
      status SMALLINT UNSIGNED NULL,
      error VARCHAR(200) NULL,
      answer VARBINARY(1024) NULL,
      PRIMARY KEY (webhook_id, event_id, n),
      KEY attempts_replay (webhook_id, seq),
      KEY attempts_recorded (recorded_at)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS attempts')
}
