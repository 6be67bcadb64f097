/**
 * Looks up the ids that requests name, for one entry or for those of several accounts at once.
 */
import type { BatchResult, Send, Statement } from '../../db/batch.ts'
import { isIdShaped } from '../ids.ts'
import { toCrmSettings } from './crm-settings-repository.ts'
import { isAssignedAutomatically, type EntryReferences, type EntryRequest } from './entry-rules.ts'
import { listCandidatesStatement, lockTurnsStatement } from './telecallers-repository.ts'

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
    return read(statements.length === 0 ? [] : await send(statements))[0]
  }
  // The account's first telecaller may come between the look at the turns and the one at the telecallers. Its turns are there then.
  return (await find()) ?? (await find())!
}

/** Lookups that are sent along with others. */
interface AskedReferences {
  statements: Statement[]
  /**
   * In the order asked; undefined for those whose account's turns somebody holds.
   * @param results of the statements
   */
  read(results: BatchResult[]): (EntryReferences | undefined)[]
}

/**
 * The same for requests of different accounts.
 * @param skipsLocked nobody waits for an account whose turns somebody holds
 */
export function askReferences(asked: ReferencesOf[], skipsLocked: boolean): AskedReferences {
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
    // With the account's settings: without the lab nobody asks for them.
    labs: lookUp(
      `SELECT s.*, l.account_id, l.id, l.active, s.account_id IS NOT NULL AS is_set
       FROM labs l FORCE INDEX (PRIMARY) LEFT JOIN crm_settings s ON s.account_id = l.account_id
       WHERE l.account_id IN (?) AND l.id IN (?)`,
      [accountIds],
      labIds,
    ),
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
      'SELECT account_id, id FROM telecallers FORCE INDEX (PRIMARY) WHERE account_id IN (?) AND active AND id IN (?)',
      [accountIds],
      bodies.map(({ assignedTo }) => assignedTo),
    ),
    turns: automatic.length > 0 ? lockTurnsStatement(automatic, skipsLocked) : undefined,
    candidates: automatic.length > 0 ? listCandidatesStatement(automatic) : undefined,
  }
  const names = (Object.keys(lookUps) as (keyof Found)[]).filter((name) => lookUps[name] !== undefined)
  return {
    statements: names.map((name) => lookUps[name]!),
    read(results) {
      const none = Object.fromEntries(Object.keys(lookUps).map((name) => [name, [] as unknown])) as Found
      const found = { ...none, ...Object.fromEntries(names.map((name, n) => [name, results[n]!])) }
      return asked.map((one) => referencesOf(one, found))
    },
  }
}

/** Of all that was found what is this account's, and this lab's. */
function referencesOf({ accountId, body }: ReferencesOf, found: Found): EntryReferences | undefined {
  const own = (rows: BatchResult) => rows.filter((row) => row.account_id === accountId)
  const namesOf = (rows: BatchResult) =>
    new Map<string, string>(own(rows).flatMap((row) => (row.lab_id === body.branchID ? [[row.id, row.name]] : [])))
  const [turns] = own(found.turns)
  const candidates = isAssignedAutomatically(body) ? own(found.candidates) : []
  if (candidates.length > 0 && !turns) return undefined
  const lab = own(found.labs).find((row) => row.id === body.branchID)
  return {
    labIsActive: Boolean(lab?.active),
    partyKinds: new Map(own(found.parties).map((row) => [row.id, row.kind])),
    testNames: namesOf(found.tests),
    packageNames: namesOf(found.packages),
    settings: toCrmSettings(lab?.is_set ? lab : undefined),
    assigneeIsActive: own(found.assignees).some((row) => row.id === body.assignedTo),
    lastTelecallerId: turns?.last_telecaller_id ?? null,
    candidates: candidates.map((row) => ({ id: row.id, openLeads: Number(row.open_leads) })),
  }
}

/** Only what can be an id reaches the server; nothing to ask is not asked. */
function lookUp(sql: string, scope: string[][], ids: (string | undefined)[]): Statement | undefined {
  const known = [scope, [ids]]
    .flat()
    .map((list) => [...new Set(list.filter((id): id is string => id !== undefined && isIdShaped(id)))])
  return known.some(({ length }) => length === 0) ? undefined : { sql, values: known }
}

type Found = Record<'labs' | 'parties' | 'tests' | 'packages' | 'assignees' | 'turns' | 'candidates', BatchResult>
