/**
 * CRM calls of many accounts that are counted in one transaction: each account is judged by itself, and is kept waiting by nobody
 * for long.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { COMMIT, type BatchResult } from '../../db/batch.ts'
import { connectDatabase, type Database } from '../../db/connection.ts'
import { runBefore } from '../../db/deadline.ts'
import { monotonicMs } from '../../src/clock.ts'
import { packCalls, unpackCalls } from '../../src/crm/crm-budget-rules.ts'
import { claimCrmCalls, claimCrmCallsAlong } from '../../src/crm/crm-budgets-repository.ts'
import { askReferences } from '../../src/crm/entry-references-repository.ts'
import type { EntryRequest } from '../../src/crm/entry-rules.ts'
import { newId } from '../../src/ids.ts'
import { togetherInTick } from '../../src/same-tick.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'

const LIMIT = 5

let db: TestDatabase
/** Another process. */
let other: Database

beforeAll(async () => {
  db = await openTestDatabase()
  other = connectDatabase(db.mysqlUrl)
})
afterAll(async () => {
  await other.close()
  await db.close()
})

async function counted(accountId: string): Promise<number> {
  const { calls } = await db.database.knex('crm_budgets').where({ account_id: accountId }).first('calls')
  return unpackCalls(calls).filter((at) => at > 0).length
}

test('each call of a group is judged by the budget of its own account, the same account several times, too', async () => {
  const [full, half, fresh] = [newId(0), newId(0), newId(0)]
  await claimCrmCalls(db.database.batch, Array(LIMIT).fill(full), LIMIT)
  await claimCrmCalls(db.database.batch, [half, half, half], LIMIT)
  const budgets = await claimCrmCalls(db.database.batch, [half, full, fresh, half, half, fresh], LIMIT)
  expect(budgets.map(({ isAccepted }) => isAccepted)).toEqual([true, false, true, true, false, true])
  expect(budgets.map(({ remaining }) => remaining)).toEqual([0, 0, 3, 0, 0, 3])
  expect([await counted(full), await counted(half), await counted(fresh)]).toEqual([5, 5, 2])
})

test('groups with the same accounts in any order, through two processes, count every call once', async () => {
  const accounts = Array.from({ length: 12 }, () => newId(0))
  const rounds = 30
  const groups = Array.from({ length: rounds }, (_, n) => {
    const { batch } = n % 2 === 0 ? db.database : other
    return claimCrmCalls(batch, n % 3 === 0 ? accounts.toReversed() : accounts, rounds)
  })
  const budgets = (await Promise.all(groups)).flat()
  expect(budgets.filter(({ isAccepted }) => !isAccepted)).toEqual([])
  for (const account of accounts) expect(await counted(account)).toBe(rounds)
})

test('an account whose row somebody holds keeps the others of its group waiting for one lock at most', async () => {
  const [held, free] = [newId(0), newId(0)]
  await claimCrmCalls(db.database.batch, [held], LIMIT)
  const trx = await db.database.knex.transaction()
  await trx('crm_budgets').where({ account_id: held }).forUpdate().first()
  let isReleased = false
  const group = claimCrmCalls(other.batch, [held, free], LIMIT)
  // `free` counts while the other one still waits.
  await expect.poll(async () => Boolean(await db.database.knex('crm_budgets').where({ account_id: free }).first()), { timeout: 8000 }).toBe(true) // prettier-ignore
  expect(isReleased).toBe(false)
  isReleased = true
  await trx.commit()
  expect((await group).map(({ isAccepted }) => isAccepted)).toEqual([true, true])
  expect([await counted(held), await counted(free)]).toEqual([2, 1])
})

test('calls of one turn of the event loop are one, each gets its own answer, and a deadline of one is not that of all', async () => {
  const asked: number[][] = []
  const double = togetherInTick(async (keys: number[]) => {
    asked.push(keys)
    // Would be rejected at once under the deadline of the first.
    return runBefore(monotonicMs() + 1000, (deadlineMs) =>
      keys.map((key) => (deadlineMs > monotonicMs() ? 2 * key : NaN)),
    )
  })
  const first = runBefore(monotonicMs() - 1, () => double(1))
  expect(await Promise.all([first, double(2), double(3)])).toEqual([2, 4, 6])
  expect(asked).toEqual([[1, 2, 3]])
  expect(await Promise.all(Array.from({ length: 70 }, (_, n) => double(n)))).toEqual(
    Array.from({ length: 70 }, (_, n) => 2 * n),
  )
  expect(asked.slice(1).map(({ length }) => length)).toEqual([64, 6])
})

test('what fails for a group fails for each of its calls, and for no later one', async () => {
  let isDown = true
  const ask = togetherInTick(async (keys: number[]) => {
    if (isDown) throw new Error('down')
    return keys
  })
  const failed = await Promise.allSettled([ask(1), ask(2)])
  expect(failed.map(({ status }) => status)).toEqual(['rejected', 'rejected'])
  isDown = false
  expect(await ask(3)).toBe(3)
})

async function insertAccount(): Promise<string> {
  const account = { id: newId(0), name: 'New', mode: 'whole_lab', time_zone: 'UTC', admin_email: 'new@example.com' }
  await db.database.knex('accounts').insert({ ...account, created_at: new Date() })
  return account.id
}

/** @returns the accounts that there are, and the budgets of those whose calls were counted */
async function claimAlong(ids: string[], leavesOut = 0) {
  const claims = claimCrmCallsAlong(ids, LIMIT)
  const body = { branchID: newId(0), phase: 'booking' } as EntryRequest
  const { statements, read } = askReferences(
    ids.map((accountId) => ({ accountId, body })),
    true,
  )
  return db.database.batch.transaction(async (send) => {
    const unwritten = Array(leavesOut).fill({ affectedRows: 0 })
    const results = [...unwritten, ...(await send([...claims.statements.slice(leavesOut), ...statements]))]
    const { accounts } = read(results.slice(claims.statements.length))
    const budgets = claims.read(results, accounts)
    await send([COMMIT])
    return { known: accounts.map(({ id }) => id), budgets }
  })
}

test('an account whose row is not to be seen yet has no budget, and is not an unknown one', async () => {
  const id = await insertAccount()
  for (const ids of [[id], [id, newId(1)]]) {
    const { known, budgets } = await claimAlong(ids, 1)
    expect(known).toEqual([id])
    expect(budgets).toEqual(new Map())
  }
})

test('counted along with other work, one alone and one of a group are judged alike, and a refused one has no budget', async () => {
  const ids = [await insertAccount(), await insertAccount()].sort()
  for (let n = 1; n < LIMIT; n++) {
    const { budgets } = await claimAlong(n % 2 === 1 ? ids : [ids[0]!])
    expect(budgets.get(ids[0]!)).toMatchObject({ isAccepted: true, limit: LIMIT, remaining: LIMIT - n })
  }
  await claimAlong([ids[0]!])
  await expect(claimAlong([ids[0]!])).rejects.toMatchObject({ errno: 1048 })
  expect([...(await claimAlong(ids)).budgets.keys()]).toEqual([ids[1]])
  expect([await counted(ids[0]!), await counted(ids[1]!)]).toEqual([LIMIT, 3])
})

test('one that has no row yet has its first call counted in a group, and alone is told to be asked by itself', async () => {
  const [alone, ...group] = [await insertAccount(), await insertAccount(), await insertAccount()].sort()
  const { budgets } = await claimAlong(group)
  expect([...budgets.values()]).toMatchObject(group.map(() => ({ isAccepted: true, remaining: LIMIT - 1 })))
  expect(await Promise.all(group.map(counted))).toEqual([1, 1])
  expect(await claimAlong([alone!])).toEqual({ known: [alone], budgets: new Map() })
  expect(await db.database.knex('crm_budgets').where({ account_id: alone! })).toEqual([])
})

test('where a refused one was counted elsewhere at the very same time nobody of the group is taken for counted', () => {
  const { read } = claimCrmCallsAlong([newId(0), newId(1)], LIMIT)
  const rows = [newId(0), newId(1)].map((id) => ({ id, calls: packCalls([0, 0, 0, 0, 7]), now: 8, has_call_time: 1 }))
  expect(() => read([{}, {}, { affectedRows: 1 }] as BatchResult[], rows as never)).toThrow(/one time/)
  expect(read([{}, {}, { affectedRows: 2 }] as BatchResult[], rows as never).size).toBe(2)
})
