/**
 * The rows that hold an account to its budget of CRM calls, over all API processes.
 */
import { COMMIT, type BatchPool } from '../../db/batch.ts'
import { withinBudget } from '../../db/connection.ts'
import { budgetOf, CRM_WINDOW_SECONDS, movedBack, packCalls, unpackCalls, type CrmBudget } from './crm-budget-rules.ts'

const NOW = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`
const packed = (microseconds: string) => `UNHEX(LPAD(HEX(${microseconds}), 16, '0'))`

/** A clock that is set back again and again while a call is made is no clock. */
const MAX_TRIES = 3

/**
 * Counts a call, or refuses it. In a transaction of its own, so that it counts whatever becomes of the call; killed before
 * the commit it does not count, and the caller has no answer.
 */
export async function claimCrmCall(batch: BatchPool, accountId: string, limit: number): Promise<CrmBudget> {
  for (let attempt = 1; ; attempt++) {
    const { isAccepted, packedCalls, now } = await withinBudget(() => claimOnce(batch, accountId, limit))
    const calls = unpackCalls(packedCalls)
    if (isAccepted || calls.at(-1)! <= now || attempt === MAX_TRIES) return budgetOf(calls, now, isAccepted)
    await moveBack(batch, accountId, packedCalls, packCalls(movedBack(calls, now)))
  }
}

/**
 * One round trip. The first statement locks the account's row, so that the time of the second, which the server takes at
 * its start, is later than that of every call accepted before. The call is accepted when the oldest of the last `limit`
 * ones has left the window, and then takes its place.
 */
async function claimOnce(batch: BatchPool, accountId: string, limit: number) {
  const [, claimed, rows] = await batch.transaction((send) =>
    send([
      {
        sql: `INSERT INTO crm_budgets (account_id, calls) VALUES (?, ?) ON DUPLICATE KEY UPDATE account_id = account_id`,
        values: [accountId, Buffer.alloc(limit * 8)],
      },
      {
        sql: `UPDATE crm_budgets SET calls = CONCAT(SUBSTRING(calls, 9), ${packed(NOW)})
          WHERE account_id = ? AND LEFT(calls, 8) <= ${packed(`${NOW} - ${CRM_WINDOW_SECONDS * 1_000_000}`)}
            AND RIGHT(calls, 8) <= ${packed(NOW)}`,
        values: [accountId],
      },
      { sql: `SELECT calls, ${NOW} AS now FROM crm_budgets WHERE account_id = ?`, values: [accountId] },
      COMMIT,
    ]),
  )
  const row = rows![0]!
  return { isAccepted: claimed!.affectedRows === 1, packedCalls: row.calls as Buffer, now: Number(row.now) }
}

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
