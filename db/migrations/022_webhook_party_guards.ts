import type { Knex } from 'knex'
import { ID, TABLE, WORD } from '../column-types.ts'

/** One active webhook a party and event: the primary key decides. A row goes when its webhook stops being active. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS webhook_party_guards (
      account_id ${ID} NOT NULL,
      lab_id ${ID} NOT NULL,
      party_id ${ID} NOT NULL,
      event_type ${WORD} NOT NULL,
      webhook_id ${ID} NOT NULL,
      PRIMARY KEY (account_id, lab_id, party_id, event_type),
      KEY webhook_party_guards_webhook (webhook_id)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS webhook_party_guards')
}
