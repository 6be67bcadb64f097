import type { Knex } from 'knex'

/** Accounts without a lab behind them, in which an entry can be walked through its life. Asks first: MySQL has no ADD COLUMN IF NOT EXISTS. */
export async function up(knex: Knex): Promise<void> {
  if (await knex.schema.hasColumn('accounts', 'sandbox')) return
  await knex.raw('ALTER TABLE accounts ADD COLUMN sandbox TINYINT(1) NOT NULL DEFAULT 0')
}

export async function down(knex: Knex): Promise<void> {
  if (await knex.schema.hasColumn('accounts', 'sandbox')) await knex.raw('ALTER TABLE accounts DROP COLUMN sandbox')
}
