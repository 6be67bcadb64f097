import type { Knex } from 'knex'
import { ID, TABLE, WORD } from '../column-types.ts'

/** Which records an erasure has taken the person out of: ids alone. It finds their events by them. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS erased_records (
      erasure_id ${ID} NOT NULL,
      record_id ${ID} NOT NULL,
      kind ${WORD} NOT NULL,
      PRIMARY KEY (erasure_id, record_id),
      KEY erased_records_record (record_id)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS erased_records')
}
