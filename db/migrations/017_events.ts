import type { Knex } from 'knex'
import { ID, ROUTING_TIME, TABLE, WORD } from '../column-types.ts'

/** The outbox: facts that happened, immutable. recorded_at is the database's own clock in the statement (routing). */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS events (
      id ${ID} NOT NULL PRIMARY KEY,
      account_id ${ID} NOT NULL,
      lab_id ${ID} NOT NULL,
      type ${WORD} NOT NULL,
      recorded_at ${ROUTING_TIME} NOT NULL,
      subject_id ${ID} NOT NULL,
      corporate_id ${ID} NULL,
      doctor_id ${ID} NULL,
      hospital_id ${ID} NULL,
      KEY events_lab (lab_id, id)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS events')
}
