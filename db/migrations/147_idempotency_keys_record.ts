import type { Knex } from 'knex'
import { ID } from '../column-types.ts'
import { addKey, dropKey, type TableKey } from '../table-keys.ts'

const KEY: TableKey = { table: 'idempotency_keys', name: 'idempotency_keys_record', columns: 'record_id' }

/** Whose record an answer tells of: an erasure of the person empties it. Null where an answer holds no patient's data. */
export async function up(knex: Knex): Promise<void> {
  if (!(await knex.schema.hasColumn('idempotency_keys', 'record_id'))) {
    await knex.raw(`ALTER TABLE idempotency_keys ADD COLUMN record_id ${ID} NULL`)
  }
  await addKey(knex, KEY)
}

export async function down(knex: Knex): Promise<void> {
  if (!(await knex.schema.hasColumn('idempotency_keys', 'record_id'))) return
  await dropKey(knex, KEY)
  await knex.raw('ALTER TABLE idempotency_keys DROP COLUMN record_id')
}
