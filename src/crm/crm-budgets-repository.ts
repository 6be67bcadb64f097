/**
 * The rows that hold an account to its budget of CRM calls, over all API processes.
 */
import { COMMIT, type BatchPool, type BatchResult, type Statement } from '../../db/batch.ts'
import { isRetriable, withinBudget } from '../../db/connection.ts'
import { microsecondsOf, SERVER_TIME, TIME_WHEN_REACHED } from '../../db/server-time.ts'
import {
  budgetOf,
  BYTES,
  CRM_WINDOW_SECONDS,
  movedBack,
  packCalls,
  unpackCalls,
  type CrmBudget,
} from './crm-budget-rules.ts'

const NOW = microsecondsOf(SERVER_TIME)
/** The same when it is reached. */
const LOCKED_NOW = microsecondsOf(TIME_WHEN_REACHED)
const packed = (microseconds: string) => `UNHEX(LPAD(HEX(${microseconds}), 16, '0'))`
const windowStart = (microseconds: string) => packed(`${microseconds} - ${CRM_WINDOW_SECONDS * 1_000_000}`)
const isAccepted = (now: string, start: string) => `LEFT(calls, 8) <= ${start} AND RIGHT(calls, 8) <= ${now}`

/** A clock that is set back again and again while a call is made is no clock. */
const MAX_TRIES = 3

interface Claim {
  isAccepted: boolean
  packedCalls: Buffer
  now: number
}

/**
 * Counts a call, or refuses it. In a transaction of its own, so that it counts whatever becomes of the call; killed before
 * the commit it does not count, and the caller has no answer.
 */
export async function claimCrmCall(batch: BatchPool, accountId: string, limit: number): Promise<CrmBudget> {
  for (let attempt = 1; ; attempt++) {
    const [claim] = await withinBudget(() => claimOnce(batch, [accountId], limit))
    const { packedCalls, now } = claim!
    if (!isAhead(claim!) || attempt === MAX_TRIES) return toBudget(claim!)
    await moveBack(batch, accountId, packedCalls, packCalls(movedBack(unpackCalls(packedCalls), now)))
  }
}

/**
 * The same for several calls, of one account or of many, in one transaction. Where somebody is in the way of one account, each is
 * asked for by itself, so that none waits for another one's row for longer than one lock may be waited for.
 */
export async function claimCrmCalls(batch: BatchPool, accountIds: string[], limit: number): Promise<CrmBudget[]> {
  const places = Map.groupBy(accountIds.keys(), (place) => accountIds[place]!)
  const claim = async (ids: string[]) => {
    const claims = await claimOnce(batch, ids, limit)
    return Promise.all(claims.map((each, n) => (isAhead(each) ? claimCrmCall(batch, ids[n]!, limit) : toBudget(each))))
  }
  try {
    if (places.size > 1) return await claim(accountIds)
  } catch (error) {
    if (!isRetriable(error)) throw error
  }
  const budgets: CrmBudget[] = []
  const ofAccounts = [...places.values()].map(async (own) => {
    const found = await withinBudget(() => claim(own.map((place) => accountIds[place]!)))
    own.forEach((place, n) => (budgets[place] = found[n]!))
  })
  await Promise.all(ofAccounts)
  return budgets
}

/** What a transaction's first round trip counts, for the caller to commit whatever becomes of the rest. */
export interface ClaimAlong {
  statements: Statement[]
  /**
   * By account; none for one that has to be asked by itself.
   * @param results of the statements
   * @param rows of the accounts, each with `BUDGET_COLUMNS`, read after them in the same transaction
   * @throws when it can't be told who was counted
   */
  read(results: BatchResult[], rows: BatchResult): Map<string, CrmBudget>
}

/**
 * One round trip less than `claimCrmCalls`, and one commit. One alone that is refused ends the transaction with an error; of a
 * group it is not counted, and the others are.
 * @param accountIds each once, in the order in which everybody locks what belongs to accounts
 */
export function claimCrmCallsAlong(accountIds: string[], limit: number): ClaimAlong {
  return accountIds.length === 1 ? claimOneAlong(accountIds) : claimGroupAlong(accountIds, limit)
}

/**
 * One statement. SYSDATE is read for each row once that is locked, so that the time is later than that of every call accepted
 * before, also where the statement had to wait. Where a server makes NOW of it, a call that waited is refused, and asked by itself;
 * so is an account's first one, which has no row yet: a statement that can make one costs every other call more.
 */
function claimOneAlong(accountIds: string[]): ClaimAlong {
  return {
    statements: [claimKnownStatement(accountIds)],
    read: ([counted], rows) => (counted!.affectedRows > 0 ? readBudgets(rows) : new Map()),
  }
}

/**
 * Counts a call of each account that has a row, and fails where one of them is refused.
 * @param accountIds each once
 */
export function claimKnownStatement(accountIds: string[]): Statement {
  return {
    sql: `UPDATE crm_budgets FORCE INDEX (PRIMARY)
      SET calls = IF(${isAccepted(packed(LOCKED_NOW), windowStart(LOCKED_NOW))},
        CONCAT(SUBSTRING(calls, 9), ${packed(LOCKED_NOW)}), NULL)
      WHERE account_id IN (?)`,
    values: [accountIds],
  }
}

function claimGroupAlong(accountIds: string[], limit: number): ClaimAlong {
  return {
    statements: [
      {
        sql: `INSERT INTO crm_budgets (account_id, calls)
          SELECT id, REPEAT(CHAR(0), ?) FROM accounts FORCE INDEX (PRIMARY) WHERE id IN (?) ORDER BY id
          ON DUPLICATE KEY UPDATE account_id = VALUES(account_id)`,
        values: [limit * BYTES, accountIds],
      },
      { sql: CALL_TIME },
      { sql: CLAIM, values: [accountIds] },
    ],
    read([, , claimed], rows) {
      const budgets = readBudgets(rows.filter((row) => row.has_call_time === 1))
      // Another process has counted a call of a refused one in the very same microsecond.
      if (budgets.size !== claimed!.affectedRows) throw new Error('calls of two processes have one time')
      return budgets
    },
  }
}

/** Of a call that was counted in the same transaction, and so is the last one of its account. */
export const BUDGET_COLUMNS = `calls, ${NOW} AS now, RIGHT(calls, 8) = @called_at AS has_call_time`

/** @param rows of accounts, with `BUDGET_COLUMNS`; one without calls has no budget yet */
export function readBudgets(rows: BatchResult[number][]): Map<string, CrmBudget> {
  const known = rows.filter(({ calls }) => calls)
  return new Map(known.map(({ id, calls, now }) => [id, budgetOf(unpackCalls(calls), Number(now), true)]))
}

/** A refused call whose account has later calls than now: the clock was set back. */
function isAhead({ isAccepted, packedCalls, now }: Claim): boolean {
  return !isAccepted && unpackCalls(packedCalls).at(-1)! > now
}

function toBudget({ isAccepted, packedCalls, now }: Claim): CrmBudget {
  return budgetOf(unpackCalls(packedCalls), now, isAccepted)
}

/**
 * One round trip. The first statement locks the accounts' rows, always in the same order, so that the time of each further one,
 * which the server takes at its start, is later than that of every call accepted before. A call is accepted when the oldest of
 * its account's last `limit` ones has left the window, and then takes its place.
 */
async function claimOnce(batch: BatchPool, accountIds: string[], limit: number): Promise<Claim[]> {
  const distinct = [...new Set(accountIds)].sort()
  const rounds = roundsOf(accountIds)
  const results = await batch.transaction((send) =>
    send([
      {
        sql: `INSERT INTO crm_budgets (account_id, calls) VALUES ${distinct.map(() => '(?, REPEAT(CHAR(0), ?))').join(', ')}
          ON DUPLICATE KEY UPDATE account_id = VALUES(account_id)`,
        values: distinct.flatMap((accountId) => [accountId, limit * BYTES]),
      },
      ...rounds.flatMap((ids) => roundStatements(ids)),
      COMMIT,
    ]),
  )
  const judged = rounds.map(
    (_, n) => new Map(results[3 * n + 2]!.map((row) => [row.account_id as string, toClaim(row)])),
  )
  const latest = new Map(judged.flatMap((claims) => [...claims]))
  const turnOf = new Map<string, number>()
  return accountIds.map((accountId) => {
    const turn = turnOf.get(accountId) ?? 0
    turnOf.set(accountId, turn + 1)
    return { ...latest.get(accountId)!, isAccepted: judged[turn]!.get(accountId)!.isAccepted }
  })
}

/** Of accounts whose rows are locked. */
function roundStatements(accountIds: string[]): Statement[] {
  return [{ sql: CALL_TIME }, { sql: JUDGE, values: [accountIds] }, { sql: CLAIM, values: [accountIds] }]
}

/** What the account's row is once the call was counted. */
function toClaim({ calls, called_at: calledAt, now, is_accepted: accepted }: BatchResult[number]): Claim {
  const isAccepted = accepted === 1
  return {
    isAccepted,
    packedCalls: isAccepted ? Buffer.concat([calls.subarray(8), calledAt]) : calls,
    now: Number(now),
  }
}

/** Every account at most once in each, several calls of one account in one after the other. */
function roundsOf(accountIds: string[]): string[][] {
  const rounds: Set<string>[] = []
  for (const accountId of accountIds) {
    const round = rounds.find((ids) => !ids.has(accountId))
    if (round) round.add(accountId)
    else rounds.push(new Set([accountId]))
  }
  return rounds.map((ids) => [...ids])
}

/** One statement, one time. */
const CALL_TIME = `SET @called_at = ${packed(NOW)}, @window_start = ${windowStart(NOW)}`

const IS_ACCEPTED = isAccepted('@called_at', '@window_start')

/**
 * The rows are locked: what is found here is what the next statement counts. Read as it is, locked: a plain read may come a moment
 * before MariaDB shows what was committed.
 */
const JUDGE = `SELECT account_id, calls, @called_at AS called_at, ${NOW} AS now, ${IS_ACCEPTED} AS is_accepted
  FROM crm_budgets FORCE INDEX (PRIMARY) WHERE account_id IN (?) FOR UPDATE`

const CLAIM = `UPDATE crm_budgets FORCE INDEX (PRIMARY) SET calls = CONCAT(SUBSTRING(calls, 9), @called_at)
  WHERE account_id IN (?) AND ${IS_ACCEPTED}`

/** Only what was read is replaced: of several that see the clock set back, one moves the calls. */
async function moveBack(batch: BatchPool, accountId: string, from: Buffer, to: Buffer): Promise<void> {
  await withinBudget(() =>
    batch.transaction((send) =>
      send([
        { sql: 'UPDATE crm_budgets SET calls = ? WHERE account_id = ? AND calls = ?', values: [to, accountId, from] },
        COMMIT,
      ]),
    ),
  )
}
