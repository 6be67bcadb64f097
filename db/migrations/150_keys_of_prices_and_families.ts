import type { Knex } from 'knex'
import { addKey, dropKey, type TableKey } from '../table-keys.ts'

/** What is removed with a test or a package, and the sessions of an account: without these every tenant's rows were read and locked. */
const KEYS: TableKey[] = [
  { table: 'party_test_prices', name: 'party_test_prices_test', columns: 'test_id' },
  { table: 'party_package_prices', name: 'party_package_prices_package', columns: 'package_id' },
  { table: 'rate_list_prices', name: 'rate_list_prices_item', columns: 'account_id, item_id' },
  { table: 'refresh_token_families', name: 'refresh_token_families_account', columns: 'account_id, revoked_at' },
]

export async function up(knex: Knex): Promise<void> {
  for (const key of KEYS) await addKey(knex, key)
}

export async function down(knex: Knex): Promise<void> {
  for (const key of KEYS) await dropKey(knex, key)
}
