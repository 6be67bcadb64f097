/**
 * Leads in one round trip. What a lead needs to know of its account is mostly what the last one found. It is written by that, and
 * the same round trip has the database compare: where anything differs, a call is over its account's budget or somebody holds the
 * account's turns, a statement fails ahead of the COMMIT, nothing is written, and the call goes on as if it had not been tried.
 *
 * What was found is kept of leads that name no party, test, package or telecaller, per account, and serves once it was found twice
 * in a row: where an account's leads come through several processes its turns change all the time.
 */
import type { Statement } from '../../db/batch.ts'
import type { Account } from '../accounts/accounts-repository.ts'
import { claimKnownStatement } from './crm-budgets-repository.ts'
import { ACCOUNT_STATE, ACTIVE_LAB, budgetsStatement } from './entry-references-repository.ts'
import { isAssignedAutomatically, PARTY_FIELDS, type EntryReferences, type EntryRequest } from './entry-rules.ts'
import { compareTurnsStatement } from './telecallers-repository.ts'

const MAX_ACCOUNTS = 5000
const MAX_LABS = 10
/** Telecallers, or custom fields, of an account that is remembered. */
const MAX_NAMES = 50

/** What was looked up for a lead. */
export interface LookedUp {
  account: Account
  references: EntryReferences
  /** As `ACCOUNT_STATE`. */
  state: string | undefined
}

export interface Foreseen extends LookedUp {
  state: string
  /** Active ones of the account. */
  labIds: ReadonlySet<string>
}

export interface LeadOf {
  accountId: string
  body: EntryRequest
}

interface Remembered extends Foreseen {
  isSteady: boolean
}

/** Whether nothing but what is remembered decides about the lead. */
function isForeseeable(body: EntryRequest): boolean {
  const namesNobody = PARTY_FIELDS.every((field) => body[field] === undefined) && isAssignedAutomatically(body)
  return namesNobody && !body.tests?.length && !body.packages?.length
}

/** Numbers of open leads change with each. */
function isRememberable({ labIsActive, settings, candidates }: EntryReferences): boolean {
  const isCounted = settings.assignStrategy === 'least_open' && candidates.length > 0
  return labIsActive && !isCounted && candidates.length <= MAX_NAMES && settings.customFields.length <= MAX_NAMES
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
      if (!known?.isSteady || !known.labIds.has(body.branchID)) return undefined
      found.push(known)
    }
    for (const { accountId } of leads) this.#remembered.delete(accountId)
    return found
  }

  /**
   * What was looked up for a lead, once that is decided.
   * @param turnOf who was assigned it by turn
   */
  learn(body: EntryRequest, { account, references, state }: LookedUp, turnOf: string | null | undefined): void {
    if (!isForeseeable(body) || state === undefined || !isRememberable(references)) return
    const before = this.#remembered.get(account.id)
    const isSteady = before?.state === state && before.references.lastTelecallerId === references.lastTelecallerId
    const labIds = [...(isSteady && before ? before.labIds : [])].filter((id) => id !== body.branchID)
    const latest = new Set([...labIds, body.branchID].slice(-MAX_LABS))
    this.#remember({ account, references, state, labIds: latest, isSteady }, turnOf)
  }

  /**
   * What was taken out has turned out to be so, or was not tried.
   * @param turnOf who was assigned a lead by it
   */
  keep(known: Foreseen, turnOf: string | null): void {
    this.#remember({ ...known, isSteady: true }, turnOf)
  }

  /** What was taken out has not served: the next time that it is looked up tells whether it still is so. */
  doubt(known: Foreseen): void {
    this.#remember({ ...known, isSteady: false }, null)
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
 * Statements that fail where anything is not as foreseen.
 * @param foreseen of different accounts, in the order in which everybody locks what belongs to them
 * @param labIds one each
 */
export function foreseenStatements(
  foreseen: Foreseen[],
  labIds: string[],
): {
  /** Counts the calls. */
  claim: Statement[]
  /** Locks the accounts' turns; its last one reads the accounts' budgets (`readBudgets`). */
  compare: Statement[]
} {
  const accountIds = foreseen.map(({ account }) => account.id)
  /** Of each account's row, which is `b`. */
  const failUnlessSame = (sql: string[], known: (one: Foreseen, n: number) => string[]): Required<Statement> => ({
    sql: failUnless(`LOCATE(CONCAT(b.account_id, ' ', ${sql.join(`, ' ', `)}, ';'), ?) > 0`),
    values: [foreseen.map((one, n) => `${one.account.id} ${known(one, n).join(' ')};`).join('')],
  })
  const turns = failUnlessSame([`COALESCE(b.last_telecaller_id, '-')`], ({ references }) => [references.lastTelecallerId ?? '-']) // prettier-ignore
  const states = failUnlessSame([ACCOUNT_STATE, ACTIVE_LAB], ({ state }, n) => [state, labIds[n]!])
  return {
    claim: [
      claimKnownStatement(accountIds),
      // An account without a row was not counted.
      { sql: `SET @difference = ${failUnless('ROW_COUNT() = ?')}`, values: [accountIds.length] },
    ],
    // The turns first, because of the candidates.
    compare: [compareTurnsStatement(accountIds, turns), budgetsStatement(accountIds, labIds, states)],
  }
}
