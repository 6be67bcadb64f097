/**
 * Looks up the ids that requests name, for one entry or for those of several accounts at once.
 */
import { createHash } from 'node:crypto'
import type { BatchResult, Send, Statement } from '../../db/batch.ts'
import { isIdShaped } from '../ids.ts'
import { BUDGET_COLUMNS } from './crm-budgets-repository.ts'
import { toCrmSettings } from './crm-settings-repository.ts'
import { isAssignedAutomatically, type EntryReferences, type EntryRequest } from './entry-rules.ts'
import { CANDIDATES, lockTurnsStatement, toCandidates } from './telecallers-repository.ts'

export interface ReferencesOf {
  accountId: string
  body: EntryRequest
}

/**
 * Looks up every id of the request, in one round trip. For an entry that is assigned automatically the account's turns are
 * locked from here to the end of the transaction: two such entries are assigned one after the other, in the order of their
 * commits, and one that is refused or lost has moved nothing. Nothing else is locked yet, so that nobody waits in a circle.
 */
export async function findEntryReferences(send: Send, asked: ReferencesOf): Promise<EntryReferences> {
  const find = async () => {
    const { statements, read } = askReferences([asked], false)
    return read(await send(statements)).references[0]
  }
  // The account's first telecaller may come between the look at the turns and the one at the telecallers. Its turns are there then.
  return (await find()) ?? (await find())!
}

/** Lookups that are sent along with others. */
interface AskedReferences {
  statements: Statement[]
  /** @param results of the statements */
  read(results: BatchResult[]): {
    /** In the order asked; undefined for those whose account's turns somebody holds. */
    references: (EntryReferences | undefined)[]
    /** Of those that there are, maybe several of one: all that `toAccount` takes. */
    accounts: BatchResult
    /** In the order asked, as `ACCOUNT_STATE`; undefined where the account is unknown. */
    states: (string | undefined)[]
  }
}

/**
 * The same for requests of different accounts.
 * @param isAlong sent along with what counts their calls: the accounts come with their budgets, and nobody waits for an account
 * whose turns somebody holds
 */
export function askReferences(asked: ReferencesOf[], isAlong: boolean): AskedReferences {
  const accountIds = asked.map(({ accountId }) => accountId)
  const bodies = asked.map(({ body }) => body)
  const labIds = bodies.map(({ branchID }) => branchID)
  const partyIds = bodies.flatMap((body) => [
    ...[body.corporateUser, body.referredOrganization, body.referredHospitalOrganization],
  ])
  const ofLab = (table: string, ids: string[]) =>
    lookUp(
      `SELECT account_id, lab_id, id, name FROM ${table} FORCE INDEX (PRIMARY)
       WHERE account_id IN (?) AND lab_id IN (?) AND active AND removed_at IS NULL AND id IN (?)`,
      [accountIds, labIds],
      ids,
    )
  const automatic = asked.filter(({ body }) => isAssignedAutomatically(body)).map(({ accountId }) => accountId)
  const lookUps: Record<keyof Found, Statement | undefined> = {
    parties: lookUp(
      'SELECT account_id, id, kind FROM parties FORCE INDEX (PRIMARY) WHERE account_id IN (?) AND id IN (?)',
      [accountIds],
      partyIds,
    ),
    tests: ofLab(
      'tests',
      bodies.flatMap(({ tests }) => (tests ?? []).map(({ test }) => test)),
    ),
    packages: ofLab(
      'packages',
      bodies.flatMap(({ packages }) => (packages ?? []).map((item) => item.package)),
    ),
    assignees: lookUp(
      // Locked: none is deactivated between this look and the entry that names it.
      'SELECT account_id, id FROM telecallers FORCE INDEX (PRIMARY) WHERE account_id IN (?) AND active AND id IN (?) LOCK IN SHARE MODE',
      [accountIds],
      bodies.map(({ assignedTo }) => assignedTo),
    ),
    turns: automatic.length > 0 ? lockTurnsStatement(automatic, isAlong) : undefined,
    // After the turns, because of the candidates.
    accounts: accountsStatement(accountIds, labIds, automatic.length > 0, isAlong),
  }
  const names = (Object.keys(lookUps) as (keyof Found)[]).filter((name) => lookUps[name] !== undefined)
  return {
    statements: names.map((name) => lookUps[name]!),
    read(results) {
      const none = Object.fromEntries(Object.keys(lookUps).map((name) => [name, [] as unknown])) as Found
      const found = { ...none, ...Object.fromEntries(names.map((name, n) => [name, results[n]!])) }
      return {
        references: asked.map((one) => referencesOf(one, found)),
        accounts: found.accounts,
        states: asked.map((one) => stateOf(one, found)),
      }
    },
  }
}

/** Of account `a` and its settings `s`: all that a lead is made by and a change may touch, but the telecallers. */
const SETTINGS_STATE = `SHA2(CONCAT_WS('\\n', a.mode, a.time_zone, s.assign_strategy, s.custom_fields, s.payment_gateways), 256)`
const inBytes = (text: string) => `CAST(${text} AS BINARY)`
/** The same with the telecallers: where two of these are the same, so is what `askReferences` finds, but for the lab and the turn. */
export const ACCOUNT_STATE = `CONCAT(${inBytes(SETTINGS_STATE)}, ' ', ${inBytes(`SHA2(COALESCE(${CANDIDATES}, ''), 256)`)})`
/** Lab `l`; where the account has no such lab, or it is inactive, it is no id. */
export const ACTIVE_LAB = `COALESCE(IF(l.active, l.id, NULL), '-')`

const LABS_AND_SETTINGS = `LEFT JOIN labs l FORCE INDEX (PRIMARY) ON l.id IN (?) AND l.account_id = a.id
      LEFT JOIN crm_settings s ON s.account_id = a.id`

/**
 * Reads accounts' budgets, and compares along.
 * @param difference a column, of budget `b` and what `ACCOUNT_STATE` is of
 */
export function budgetsStatement(accountIds: string[], labIds: string[], difference: Required<Statement>): Statement {
  return {
    sql: `SELECT b.account_id AS id, ${BUDGET_COLUMNS}, ${difference.sql} AS difference
      FROM crm_budgets b FORCE INDEX (PRIMARY)
      LEFT JOIN accounts a FORCE INDEX (PRIMARY) ON a.id = b.account_id
      ${LABS_AND_SETTINGS}
      WHERE b.account_id IN (?)`,
    values: [...difference.values, labIds, accountIds],
  }
}

/**
 * Each account with its settings and with those of the labs that are its own: one row for each lab, and one where there is none. In
 * one statement, which costs half of what one for each table does.
 */
function accountsStatement(
  accountIds: string[],
  labIds: string[],
  withCandidates: boolean,
  withBudgets: boolean,
): Statement {
  const known = labIds.filter(isIdShaped)
  return {
    sql: `SELECT a.*, l.id AS lab_id, l.active AS lab_is_active, s.assign_strategy, s.custom_fields, s.payment_gateways,
        ${withCandidates ? CANDIDATES : 'NULL'} AS candidates${withBudgets ? `, ${SETTINGS_STATE} AS settings_state, ${BUDGET_COLUMNS}` : ''}
      FROM accounts a FORCE INDEX (PRIMARY)
      ${withBudgets ? 'LEFT JOIN crm_budgets b FORCE INDEX (PRIMARY) ON b.account_id = a.id' : ''}
      ${LABS_AND_SETTINGS}
      WHERE a.id IN (?)`,
    values: [known.length > 0 ? known : [''], accountIds],
  }
}

/** Of all that was found what is this account's, and this lab's. */
function referencesOf({ accountId, body }: ReferencesOf, found: Found): EntryReferences | undefined {
  const own = (rows: BatchResult) => rows.filter((row) => row.account_id === accountId)
  const namesOf = (rows: BatchResult) =>
    new Map<string, string>(own(rows).flatMap((row) => (row.lab_id === body.branchID ? [[row.id, row.name]] : [])))
  const [turns] = own(found.turns)
  const ofAccount = found.accounts.filter((row) => row.id === accountId)
  const candidates = isAssignedAutomatically(body) ? toCandidates(ofAccount[0]?.candidates ?? null) : []
  if (candidates.length > 0 && !turns) return undefined
  const lab = ofAccount.find((row) => row.lab_id === body.branchID)
  return {
    labIsActive: Boolean(lab?.lab_is_active),
    partyKinds: new Map(own(found.parties).map((row) => [row.id, row.kind])),
    testNames: namesOf(found.tests),
    packageNames: namesOf(found.packages),
    settings: toCrmSettings(ofAccount[0]?.assign_strategy ? ofAccount[0] : undefined),
    assigneeIsActive: own(found.assignees).some((row) => row.id === body.assignedTo),
    lastTelecallerId: turns?.last_telecaller_id ?? null,
    candidates,
  }
}

function stateOf({ accountId }: ReferencesOf, { accounts }: Found): string | undefined {
  const row = accounts.find((own) => own.id === accountId)
  const candidates = createHash('sha256').update(row?.candidates ?? '')
  return row?.settings_state && `${row.settings_state} ${candidates.digest('hex')}`
}

/** Only what can be an id reaches the server; nothing to ask is not asked. */
function lookUp(sql: string, scope: string[][], ids: (string | undefined)[]): Statement | undefined {
  const known = [scope, [ids]]
    .flat()
    .map((list) => [...new Set(list.filter((id): id is string => id !== undefined && isIdShaped(id)))])
  return known.some(({ length }) => length === 0) ? undefined : { sql, values: known }
}

type Found = Record<'parties' | 'tests' | 'packages' | 'assignees' | 'turns' | 'accounts', BatchResult>
