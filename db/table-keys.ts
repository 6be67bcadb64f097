/**
 * Keys of tables, for migrations. Each asks first, so that a migration which was killed behind its statement runs again: MySQL has
 * no ADD KEY IF NOT EXISTS.
 */
import type { Knex } from 'knex'

export interface TableKey {
  table: string
  name: string
  /** As in SQL. */
  columns: string
}

export async function addKey(knex: Knex, key: TableKey): Promise<void> {
  if (!(await hasKey(knex, key))) await knex.raw(`ALTER TABLE ${key.table} ADD KEY ${key.name} (${key.columns})`)
}

export async function dropKey(knex: Knex, key: TableKey): Promise<void> {
  if (await hasKey(knex, key)) await knex.raw(`ALTER TABLE ${key.table} DROP KEY ${key.name}`)
}

async function hasKey(knex: Knex, { table, name }: TableKey): Promise<boolean> {
  const [rows] = await knex.raw(
    `SELECT 1 FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = ? AND index_name = ?`,
    [table, name],
  )
  return rows.length > 0
}
