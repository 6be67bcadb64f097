import type { Knex } from 'knex'
import { ID, TABLE, TIME, WORD } from '../column-types.ts'

/** What staff are told of: NEW_LEAD, BOOKING_CONFIRMED. Ids only, nothing of a patient. No webhook gets these. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS staff_notifications (
      id ${ID} NOT NULL PRIMARY KEY,
      account_id ${ID} NOT NULL,
      lab_id ${ID} NOT NULL,
      kind ${WORD} NOT NULL,
      entry_id ${ID} NOT NULL,
      created_at ${TIME} NOT NULL,
      KEY staff_notifications_account (account_id, id)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS staff_notifications')
}
