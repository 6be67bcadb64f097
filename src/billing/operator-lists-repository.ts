/**
 * Values that the operator keeps for an account: where bookings come from, and which rate lists there are.
 */
import type { Knex } from 'knex'

export type OperatorList = 'lead_source' | 'rate_list_type'

/** In the order in which they were given. */
export async function listOperatorValues(knex: Knex, accountId: string, list: OperatorList): Promise<string[]> {
  const rows = await knex('operator_lists').where({ account_id: accountId, list }).orderBy('position').select('value')
  return rows.map((row) => row.value)
}

/** Replaces the list. Two at once: one waits for the other, or is run again, so that neither leaves a mixture. */
export async function updateOperatorValues(
  trx: Knex.Transaction,
  accountId: string,
  list: OperatorList,
  values: string[],
): Promise<void> {
  await trx('accounts').where({ id: accountId }).forUpdate().select('id')
  await trx('operator_lists').where({ account_id: accountId, list }).delete()
  const rows = values.map((value, position) => ({ account_id: accountId, list, position, value }))
  if (rows.length > 0) await trx('operator_lists').insert(rows)
}
