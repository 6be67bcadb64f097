import type { Knex } from 'knex'
import { ID, MONEY, TABLE, WORD } from '../column-types.ts'

/** Rows of open imports. fault: what is wrong with the row itself; clash: with it beside the others and the catalogue, as of the last validation, like target_id (what it changes or prices; null: nothing that is there) and is_update. new_id becomes the id of what it creates. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS catalogue_import_rows (
      import_id ${ID} NOT NULL,
      line INT UNSIGNED NOT NULL,
      new_id ${ID} NOT NULL,
      item_kind ${WORD} NOT NULL,
      code VARCHAR(64) NULL,
      name VARCHAR(200) NULL,
      price ${MONEY} NULL,
      service_id VARCHAR(64) NULL,
      sets_service_id TINYINT(1) NOT NULL,
      party_id ${ID} NULL,
      rate_list_type VARCHAR(200) NULL,
      fault VARCHAR(500) NULL,
      clash VARCHAR(500) NULL,
      target_id ${ID} NULL,
      is_update TINYINT(1) NOT NULL DEFAULT 0,
      PRIMARY KEY (import_id, line),
      KEY catalogue_import_rows_code (import_id, item_kind, code),
      KEY catalogue_import_rows_service (import_id, service_id)
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS catalogue_import_rows')
}
