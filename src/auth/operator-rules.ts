/**
 * What an operator key may do. Pure.
 */
import type { Account } from '../accounts/accounts-repository.ts'
import type { Lab } from '../catalogue/labs-repository.ts'
import { DomainError, notFound } from '../errors.ts'
import type { OperatorKey } from './operator-keys-repository.ts'

/** `staff` works with entries, bills and deliveries; `admin` does that too, and keeps accounts and the catalogue. */
export type OperatorRole = 'admin' | 'staff'

/** @throws 403 when the key's role does not reach so far */
export function requireRole(operator: OperatorKey, role: OperatorRole): void {
  if (operator.role !== role && operator.role !== 'admin')
    throw operatorForbidden(`this takes an operator key with the role ${role}`)
}

/** @throws 403 when the key is bound to one account, and so may not make others */
export function requireUnbound(operator: OperatorKey): void {
  if (operator.accountId !== null) throw operatorForbidden('this operator key is bound to one account')
}

/** @throws 404, the same for an account that does not exist and for one that the key is not bound to */
export function requireAccountOf(operator: OperatorKey, account: Account | undefined): Account {
  if (!account || !reaches(operator, account.id)) throw notFound('account not found')
  return account
}

/** @throws 404, the same for a lab that does not exist and for one that the key does not reach */
export function requireLabOf(operator: OperatorKey, lab: Lab | undefined): Lab {
  if (!lab || !reaches(operator, lab.accountId)) throw notFound('lab not found')
  return lab
}

/** Whether the key may work with the account. */
export function reaches(operator: OperatorKey, accountId: string): boolean {
  return operator.accountId === null || operator.accountId === accountId
}

/** Whether the key may do everything everywhere; without one nobody could create keys any more. */
export function reachesEverything(operator: OperatorKey): boolean {
  return operator.role === 'admin' && operator.accountId === null
}

function operatorForbidden(details: string): DomainError {
  return new DomainError('forbidden', 'operator_forbidden', details)
}
