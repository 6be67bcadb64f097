import type { Knex } from 'knex'
import { ID, MONEY, TABLE, TIME } from '../column-types.ts'

/** The tests a lab sells. Its code and its service_id each name one test of the lab. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS tests (
      id ${ID} NOT NULL PRIMARY KEY,
      account_id ${ID} NOT NULL,
      lab_id ${ID} NOT NULL,
      name VARCHAR(200) NOT NULL,
      code VARCHAR(64) NOT NULL,
      cost ${MONEY} NOT NULL,
      service_id VARCHAR(64) NULL,
      created_at ${TIME} NOT NULL,
      UNIQUE KEY tests_code (lab_id, code),
      UNIQUE KEY tests_service (lab_id, service_id),
      KEY tests_lab (lab_id, name, id)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS tests')
}
