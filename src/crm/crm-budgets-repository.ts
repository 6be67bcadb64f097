/**
 * The rows that hold an account to its budget of CRM calls, over all API processes.
 */
import { COMMIT, type BatchPool } from '../../db/batch.ts'
import { isRetriable, withinBudget } from '../../db/connection.ts'
import { budgetOf, CRM_WINDOW_SECONDS, movedBack, packCalls, unpackCalls, type CrmBudget } from './crm-budget-rules.ts'

const NOW = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`
const packed = (microseconds: string) => `UNHEX(LPAD(HEX(${microseconds}), 16, '0'))`

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
  const results = await batch.transaction((send) =>
    send([
      {
        sql: `INSERT INTO crm_budgets (account_id, calls) VALUES ${distinct.map(() => '(?, REPEAT(CHAR(0), ?))').join(', ')}
          ON DUPLICATE KEY UPDATE account_id = VALUES(account_id)`,
        values: distinct.flatMap((accountId) => [accountId, limit * 8]),
      },
      ...accountIds.map((accountId) => ({ sql: CLAIM, values: [accountId] })),
      { sql: `SELECT account_id, calls, ${NOW} AS now FROM crm_budgets WHERE account_id IN (?)`, values: [distinct] },
      COMMIT,
    ]),
  )
  const rows = new Map(results.at(-2)!.map((row) => [row.account_id as string, row]))
  return accountIds.map((accountId, n) => {
    const row = rows.get(accountId)!
    const isAccepted = results[n + 1]!.affectedRows === 1
    return { isAccepted, packedCalls: row.calls as Buffer, now: Number(row.now) }
  })
}

const CLAIM = `UPDATE crm_budgets SET calls = CONCAT(SUBSTRING(calls, 9), ${packed(NOW)})
  WHERE account_id = ? AND LEFT(calls, 8) <= ${packed(`${NOW} - ${CRM_WINDOW_SECONDS * 1_000_000}`)}
    AND RIGHT(calls, 8) <= ${packed(NOW)}`

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
