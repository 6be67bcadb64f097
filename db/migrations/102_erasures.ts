import type { Knex } from 'knex'
import { ID, TABLE, TIME, WORD } from '../column-types.ts'

/**
 * Orders to erase a patient, each with how far it has come: the phase, and within it the lab and the last row that were looked
 * at. subject: whom it is about, encrypted, gone when it is done. counts: JSON of numbers.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS erasures (
      id ${ID} NOT NULL PRIMARY KEY,
      account_id ${ID} NOT NULL,
      state ${WORD} NOT NULL,
      phase ${WORD} NOT NULL,
      lab_id ${ID} NULL,
      position ${ID} NULL,
      subject MEDIUMBLOB NULL,
      counts TEXT NOT NULL,
      created_at ${TIME} NOT NULL,
      updated_at ${TIME} NOT NULL,
      finished_at ${TIME} NULL,
      KEY erasures_account (account_id, id),
      KEY erasures_state (state, id)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS erasures')
}
