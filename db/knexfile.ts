/**
 * How knex finds and books the migrations. `migrate.ts` runs them, always under its guard: the knex command line is not used.
 */
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Knex } from 'knex'

export const MIGRATIONS = {
  directory: join(import.meta.dirname, 'migrations'),
  tableName: 'schema_migrations',
  loadExtensions: ['.ts'],
  // A DDL statement ends a transaction by itself on both servers: each migration is one statement that can run again.
  disableTransactions: true,
} satisfies Knex.MigratorConfig

/** File names in the order in which they run. */
export function listMigrationNames(): string[] {
  return readdirSync(MIGRATIONS.directory)
    .filter((name) => name.endsWith('.ts'))
    .sort()
}
