/**
 * Holds every account to its budget of CRM calls. A call counts once its caller is known, whatever its answer; one that is
 * refused here does not. The headers are set on the response itself, so that errors carry them, too.
 */
import type { Response } from 'express'
import type { BatchPool } from '../../db/batch.ts'
import type { Account } from '../accounts/accounts-repository.ts'
import type { Admission } from '../api.ts'
import { requireAccount } from '../auth/bearer-authentication.ts'
import { monotonicMs } from '../clock.ts'
import { togetherInTick } from '../same-tick.ts'
import { budgetHeaders, isCrmOperation, overBudget, type CrmBudget } from './crm-budget-rules.ts'
import { claimCrmCall, claimCrmCalls } from './crm-budgets-repository.ts'

/**
 * Who calls an operation whose handler looks the account up and counts the call along with its own work: three round trips to the
 * database are one then. Where the request is refused before its handler is asked, it is done first all the same.
 */
export class LateCaller {
  /** Of the account, as the token says. */
  readonly id: string
  readonly #admission: CrmAdmission
  readonly #res: Response

  constructor(id: string, admission: CrmAdmission, res: Response) {
    this.id = id
    this.#admission = admission
    this.#res = res
  }

  /** Calls in a window, the same for all. */
  get limit(): number {
    return this.#admission.limit
  }

  /** @throws 401 and 429 */
  async admit(): Promise<Account> {
    const account = requireAccount(await this.#admission.findAccount(this.id))
    await this.#admission.countAlone(this.id, this.#res)
    return account
  }

  /**
   * What was found and counted along with the work.
   * @param askedAtMs monotonic
   * @throws 401 and 429
   */
  admitted(account: Account | undefined, budget: CrmBudget | undefined, askedAtMs: number): Account {
    const known = requireAccount(account)
    if (budget) this.#admission.judge(this.id, budget, askedAtMs, this.#res)
    return known
  }
}

export class CrmAdmission {
  /** Calls in a window. */
  readonly limit: number
  readonly findAccount: (accountId: string) => Promise<Account | undefined>
  readonly #batch: BatchPool
  readonly #refused = new RefusedAccounts()
  readonly #claim: (accountId: string) => Promise<CrmBudget>

  constructor(batch: BatchPool, limit: number, findAccount: CrmAdmission['findAccount']) {
    this.limit = limit
    this.findAccount = findAccount
    this.#batch = batch
    this.#claim = togetherInTick((accountIds) => claimCrmCalls(batch, accountIds, limit))
  }

  /** One that is over its budget is told so at once. */
  callerOf(accountId: string, res: Response): LateCaller | undefined {
    return this.#refused.find(accountId, monotonicMs()) ? undefined : new LateCaller(accountId, this, res)
  }

  readonly admit: Admission = async (operationId, { integrator }, res) => {
    if (!isCrmOperation(operationId)) return undefined
    if (integrator instanceof LateCaller) return async () => void (await integrator.admit())
    await this.#count((integrator as Account).id, res, this.#claim)
    return undefined
  }

  /**
   * In a transaction of its own: for one of a group that somebody kept waiting.
   * @throws 429
   */
  countAlone(accountId: string, res: Response): Promise<void> {
    return this.#count(accountId, res, (id) => claimCrmCall(this.#batch, id, this.limit))
  }

  async #count(accountId: string, res: Response, claim: (accountId: string) => Promise<CrmBudget>): Promise<void> {
    const askedAtMs = monotonicMs()
    this.judge(accountId, this.#refused.find(accountId, askedAtMs) ?? (await claim(accountId)), askedAtMs, res)
  }

  /** @throws 429 */
  judge(accountId: string, budget: CrmBudget, askedAtMs: number, res: Response): void {
    if (!budget.isAccepted) this.#refused.remember(accountId, budget, askedAtMs, monotonicMs())
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
