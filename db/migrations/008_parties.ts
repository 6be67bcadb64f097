import type { Knex } from 'knex'
import { ID, TABLE, TIME, WORD } from '../column-types.ts'

/** A corporate (corporateUser), a doctor or a hospital (organization). */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS parties (
      id ${ID} NOT NULL PRIMARY KEY,
      account_id ${ID} NOT NULL,
      kind ${WORD} NOT NULL,
      name VARCHAR(200) NOT NULL,
      created_at ${TIME} NOT NULL,
      KEY parties_account (account_id, kind, id)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS parties')
}
