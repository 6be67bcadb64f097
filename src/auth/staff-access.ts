import type { Knex } from 'knex'
import { findAccount, type Account } from '../accounts/accounts-repository.ts'
import type { OperatorKey } from './operator-keys-repository.ts'
import { requireAccountOf, requireRole, type OperatorRole } from './operator-rules.ts'

/**
 * The account that a call is about.
 * @throws 403 where the key's role does not reach so far, 404 for an account that the key does not reach
 */
export async function findAccountFor(
  knex: Knex,
  operator: OperatorKey,
  role: OperatorRole,
  accountId: string,
): Promise<Account> {
  requireRole(operator, role)
  return requireAccountOf(operator, await findAccount(knex, accountId))
}
