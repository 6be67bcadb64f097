import type { Knex } from 'knex'
import { ID, MONEY, TABLE, TIME } from '../column-types.ts'

/** The packages a lab sells. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS packages (
      id ${ID} NOT NULL PRIMARY KEY,
      account_id ${ID} NOT NULL,
      lab_id ${ID} NOT NULL,
      name VARCHAR(200) NOT NULL,
      code VARCHAR(64) NOT NULL,
      total ${MONEY} NOT NULL,
      created_at ${TIME} NOT NULL,
      UNIQUE KEY packages_code (lab_id, code),
      KEY packages_lab (lab_id, name, id)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS packages')
}
