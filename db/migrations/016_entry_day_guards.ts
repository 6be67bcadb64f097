import type { Knex } from 'knex'
import { HASH, ID, TABLE, WORD } from '../column-types.ts'

/** One entry a day for a contact or an e-mail of an account: the primary key decides the race, not a read before it. The value is a hash, so that the guard holds no patient data. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS entry_day_guards (
      account_id ${ID} NOT NULL,
      day DATE NOT NULL,
      kind ${WORD} NOT NULL,
      value_hash ${HASH} NOT NULL,
      entry_id ${ID} NOT NULL,
      PRIMARY KEY (account_id, day, kind, value_hash),
      KEY entry_day_guards_day (day)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS entry_day_guards')
}
