import type { Knex } from 'knex'
import { ID } from '../column-types.ts'

/**
 * A report belongs to a bill, whose patient may have no contact; its file is one of report_files. Reports from before have
 * neither bill nor file_id: their file has the report's own id. Asks first: MySQL has no ADD COLUMN IF NOT EXISTS.
 */
export async function up(knex: Knex): Promise<void> {
  if (await knex.schema.hasColumn('reports', 'bill_id')) return
  await knex.raw(
    `ALTER TABLE reports MODIFY patient_id ${ID} NULL, ADD COLUMN bill_id ${ID} NULL, ADD COLUMN file_id ${ID} NULL, ADD COLUMN amended BOOLEAN NOT NULL DEFAULT FALSE, ADD KEY reports_bill (bill_id), ADD KEY reports_account (account_id, id)`,
  )
}

export async function down(knex: Knex): Promise<void> {
  if (!(await knex.schema.hasColumn('reports', 'bill_id'))) return
  await knex('reports').whereNull('patient_id').delete()
  await knex.raw(
    `ALTER TABLE reports MODIFY patient_id ${ID} NOT NULL, DROP KEY reports_bill, DROP KEY reports_account, DROP COLUMN bill_id, DROP COLUMN file_id, DROP COLUMN amended`,
  )
}
