/**
 * Accounts of the calls just made. Every call needs its account, and a read each would double the database's work: what
 * was read less than half a second ago serves again. A deleted account, or another mode, counts in every process after that.
 */
import type { Knex } from 'knex'
import { findAccounts, type Account } from '../accounts/accounts-repository.ts'
import { monotonicMs, type Clock } from '../clock.ts'
import { togetherInTick } from '../same-tick.ts'

const FRESH_MS = 500
/** So long after a change every process has what it is now, in milliseconds; a timer may be a little early. */
export const ACCOUNT_CHANGE_MS = FRESH_MS + 50
const MAX_REMEMBERED = 10_000

interface Remembered {
  /** Monotonic: the clock may have been put right since. */
  readAtMs: number
  /** Where it jumps, what was read before counts for nothing. */
  clockMs: number
  account: Promise<Account | undefined>
}

export class RecentAccounts {
  readonly #find: (accountId: string) => Promise<Account | undefined>
  readonly #clock: Clock
  readonly #remembered = new Map<string, Remembered>()

  constructor(knex: Knex, clock: Clock) {
    this.#find = togetherInTick(async (accountIds) => {
      const found = new Map((await findAccounts(knex, accountIds)).map((account) => [account.id, account]))
      return accountIds.map((id) => found.get(id))
    })
    this.#clock = clock
  }

  /** @returns undefined when there is no such account */
  async get(accountId: string): Promise<Account | undefined> {
    const [nowMs, clockMs] = [monotonicMs(), this.#clock.nowMs()]
    const known = this.#remembered.get(accountId)
    if (known && nowMs - known.readAtMs < FRESH_MS && Math.abs(clockMs - known.clockMs) < FRESH_MS) return known.account
    const account = this.#find(accountId)
    this.#remembered.delete(accountId)
    if (this.#remembered.size >= MAX_REMEMBERED) this.#remembered.delete(this.#remembered.keys().next().value!)
    this.#remembered.set(accountId, { readAtMs: nowMs, clockMs, account })
    // A failed read is forgotten, so that the next call tries again.
    account.catch(() => this.#remembered.delete(accountId))
    return account
  }
}
