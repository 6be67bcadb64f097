/**
 * Leads in one round trip. What a lead needs to know of its account is mostly what the last one found. It is written by that, and
 * the same round trip has the database compare: where anything differs, a call is over its account's budget or somebody holds the
 * account's turns, a statement fails ahead of the COMMIT, nothing is written, and the call goes on as if it had not been tried.
 *
 * What was found is kept of leads that name no party, test, package or telecaller, per account, and serves once it was found twice
 * in a row: where an account's leads come through several processes its turns change all the time.
 */
import type { BatchResult, Statement } from '../../db/batch.ts'
import type { Account } from '../accounts/accounts-repository.ts'
import type { CrmBudget } from './crm-budget-rules.ts'
import { claimKnownStatement, readBudgets } from './crm-budgets-repository.ts'
import { ACCOUNT_STATE, budgetsStatement } from './entry-references-repository.ts'
import { isAssignedAutomatically, PARTY_FIELDS, type EntryReferences, type EntryRequest } from './entry-rules.ts'
import { compareTurnsStatement } from './telecallers-repository.ts'

const MAX_ACCOUNTS = 5000
const MAX_LABS = 10

/** What was looked up for a lead. */
export interface LookedUp {
  account: Account
  references: EntryReferences
  /** As `ACCOUNT_STATE`; undefined where the lab is not the account's. */
  state: string | undefined
}

export interface Foreseen extends LookedUp {
  state: string
  /** Of this and other labs, by their ids. */
  states: Map<string, string>
}

export interface LeadOf {
  accountId: string
  body: EntryRequest
}

interface Remembered extends Omit<Foreseen, 'state'> {
  isSteady: boolean
}

/** Whether nothing but what is remembered decides about the lead. */
function isForeseeable(body: EntryRequest): boolean {
  const namesNobody = PARTY_FIELDS.every((field) => body[field] === undefined) && isAssignedAutomatically(body)
  return namesNobody && !body.tests?.length && !body.packages?.length
}

export class EntryForesight {
  readonly #remembered = new Map<string, Remembered>()

  /**
   * Accounts are taken out: what becomes of the leads says what the next ones find (`keep`), and another one meanwhile looks for
   * itself.
   * @param leads of different accounts
   * @returns undefined, and takes nothing, where one has to look
   */
  take(leads: LeadOf[]): Foreseen[] | undefined {
    const found: Foreseen[] = []
    for (const { accountId, body } of leads) {
      const known = isForeseeable(body) ? this.#remembered.get(accountId) : undefined
      const state = known?.states.get(body.branchID)
      if (!known?.isSteady || state === undefined) return undefined
      found.push({ ...known, state })
    }
    for (const { accountId } of leads) this.#remembered.delete(accountId)
    return found
  }

  /**
   * What was looked up for a lead, once that is decided.
   * @param turnOf who was assigned it by turn
   */
  learn(body: EntryRequest, { account, references, state }: LookedUp, turnOf: string | null | undefined): void {
    if (!isForeseeable(body) || !references.labIsActive || state === undefined) return
    // Numbers of open leads change with each.
    if (references.settings.assignStrategy === 'least_open' && references.candidates.length > 0) return
    const before = this.#remembered.get(account.id)
    const stateBefore = before?.states.get(body.branchID)
    const isSame =
      before?.references.lastTelecallerId === references.lastTelecallerId && (stateBefore ?? state) === state
    const states = isSame && before ? before.states : new Map<string, string>()
    if (stateBefore === undefined && states.size < MAX_LABS) states.set(body.branchID, state)
    this.#remember({ account, references, states, isSteady: isSame }, turnOf)
  }

  /** What was taken out has turned out to be so. */
  keep({ account, references, states }: Foreseen, turnOf: string | null): void {
    this.#remember({ account, references, states, isSteady: true }, turnOf)
  }

  /** What was taken out has not served: the next time that it is looked up tells whether it still is so. */
  doubt({ account, references, states }: Foreseen): void {
    this.#remember({ account, references, states, isSteady: false }, null)
  }

  #remember(known: Remembered, turnOf: string | null | undefined): void {
    const { account, references } = known
    this.#remembered.delete(account.id)
    if (this.#remembered.size >= MAX_ACCOUNTS) this.#remembered.delete(this.#remembered.keys().next().value!)
    const lastTelecallerId = turnOf ?? references.lastTelecallerId
    this.#remembered.set(account.id, { ...known, references: { ...references, lastTelecallerId } })
  }
}

/** Fails, and with it what is sent along, unless the condition holds: an unsigned number falls below zero. */
const failUnless = (condition: string) => `CAST(${condition} AS UNSIGNED) - CAST(1 AS UNSIGNED)`

/**
 * Statements that count the calls and lock the accounts' turns, and fail where anything is not as foreseen.
 * @param foreseen of different accounts, in the order in which everybody locks what belongs to them
 */
export function foreseenStatements(
  foreseen: Foreseen[],
  labIds: string[],
): {
  statements: Statement[]
  /** @param results of the statements */
  budgetsOf(results: BatchResult[]): Map<string, CrmBudget>
} {
  const accountIds = foreseen.map(({ account }) => account.id)
  /** Of each account's row, which is `b`. */
  const failUnlessSame = (sql: string, known: (one: Foreseen) => string): Required<Statement> => ({
    sql: failUnless(`LOCATE(CONCAT(b.account_id, ' ', ${sql}, ';'), ?) > 0`),
    values: [foreseen.map((one) => `${one.account.id} ${known(one)};`).join('')],
  })
  const statements: Statement[] = [
    claimKnownStatement(accountIds),
    // An account without a row was not counted.
    { sql: `SET @difference = ${failUnless('ROW_COUNT() = ?')}`, values: [accountIds.length] },
    compareTurnsStatement(accountIds, failUnlessSame(`COALESCE(b.last_telecaller_id, '-')`, ({ references }) => references.lastTelecallerId ?? '-')), // prettier-ignore
    // After the turns, because of the candidates.
    budgetsStatement(
      accountIds,
      labIds,
      failUnlessSame(ACCOUNT_STATE, ({ state }) => state),
    ),
  ]
  return { statements, budgetsOf: (results) => readBudgets(results[statements.length - 1]!) }
}
