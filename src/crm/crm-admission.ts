import type { BatchPool } from '../../db/batch.ts'
import type { Account } from '../accounts/accounts-repository.ts'
import type { Admission } from '../api.ts'
import { monotonicMs } from '../clock.ts'
import { togetherInTick } from '../same-tick.ts'
import { budgetHeaders, isCrmOperation, overBudget, type CrmBudget } from './crm-budget-rules.ts'
import { claimCrmCalls } from './crm-budgets-repository.ts'

/**
 * Holds every account to its budget of CRM calls. A call counts once its caller is known, whatever its answer; one that is
 * refused here does not. The headers are set on the response itself, so that errors carry them, too.
 * @param limit calls in a window
 */
export function createCrmAdmission(batch: BatchPool, limit: number): Admission {
  const refused = new RefusedAccounts()
  const claim = togetherInTick((accountIds: string[]) => claimCrmCalls(batch, accountIds, limit))
  return async (operationId, security, res) => {
    if (!isCrmOperation(operationId)) return
    const { id } = security.integrator as Account
    const askedAtMs = monotonicMs()
    const budget = refused.find(id, askedAtMs) ?? (await claim(id))
    if (!budget.isAccepted) refused.remember(id, budget, askedAtMs, monotonicMs())
    for (const [name, value] of Object.entries(budgetHeaders(budget))) res.setHeader(name, value)
    if (!budget.isAccepted) throw overBudget(budget)
  }
}

const MAX_REMEMBERED = 10_000

/**
 * Accounts that were just refused: until their oldest call leaves the window no process accepts a further one, so that this one
 * need not ask. An account that calls without end then costs the database nothing, and nobody waits behind it.
 */
class RefusedAccounts {
  /** The answer was true at some time between asking and hearing it: refused until the one, told to wait until the other. */
  readonly #refused = new Map<string, { budget: CrmBudget; untilMs: number; freeAtMs: number }>()

  find(accountId: string, nowMs: number): CrmBudget | undefined {
    const known = this.#refused.get(accountId)
    if (!known) return undefined
    if (nowMs < known.untilMs) return { ...known.budget, moreInMs: known.freeAtMs - nowMs }
    this.#refused.delete(accountId)
    return undefined
  }

  remember(accountId: string, budget: CrmBudget, askedAtMs: number, heardAtMs: number): void {
    if (this.#refused.has(accountId)) return
    if (this.#refused.size >= MAX_REMEMBERED) this.#refused.delete(this.#refused.keys().next().value!)
    const { moreInMs } = budget
    this.#refused.set(accountId, { budget, untilMs: askedAtMs + moreInMs, freeAtMs: heardAtMs + moreInMs })
  }
}
