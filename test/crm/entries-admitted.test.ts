/**
 * lead/create looks its account up and counts its call along with the lead, in one round trip: what is refused, what counts and in
 * which order is as for every other operation.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connectDatabase, type Database } from '../../db/connection.ts'
import { CRM_CALLS, packCalls } from '../../src/crm/crm-budget-rules.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { buildAccount, buildLab, leadBody, type TestAccount } from '../support/builders.ts'
import { buildTenants, countedCalls, entryCalls } from '../support/entry-calls.ts'

const PATH = '/client/crm/lead/create'
const MINUTE = 60_000_000

let app: TestApp
/** Another process. */
let other: Database

beforeAll(async () => {
  app = await startTestApp({ crmCalls: CRM_CALLS })
  other = connectDatabase(app.mysqlUrl)
})
afterAll(async () => {
  await other.close()
  await app.close()
})

/** Calls counted at these times, in microseconds from now; the others of the budget are long ago. */
async function countCalls(accountId: string, ...fromNow: number[]): Promise<void> {
  const now = (await app.database.readTimeMs()) * 1000
  const calls = packCalls([...Array(CRM_CALLS - fromNow.length).fill(0), ...fromNow.map((at) => now + at)])
  await app.database.knex('crm_budgets').insert({ account_id: accountId, calls })
}

async function post(account: TestAccount, rawBody: string, headers: Record<string, string> = {}) {
  return app.call('POST', PATH, { token: account.token, rawBody, headers })
}

const entriesOf = (accountId: string) => app.database.knex('entries').where({ account_id: accountId })

test('of a group one that is over its budget is refused, is not counted, and writes nothing; the others do', async () => {
  const tenants = await buildTenants(app, 4)
  const over = tenants[1]!.account.id
  await countCalls(over, ...Array(CRM_CALLS).fill(-MINUTE / 2))
  const before = await app.database.knex('crm_budgets').where({ account_id: over }).first()
  const { create, callOf } = entryCalls(app)
  const calls = tenants.map((tenant) => callOf(tenant))
  const outcomes = await Promise.allSettled(calls.map((call) => create(call)))
  expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled', 'fulfilled'])
  expect(outcomes[1]).toMatchObject({ reason: { kind: 'too_many_requests', code: 'rate_limited' } })
  expect(calls.map(({ res }) => res.getHeader('RateLimit'))).toEqual(
    [59, 0, 59, 59].map((left, n) => expect.stringMatching(`^"crm";r=${left};t=${n === 1 ? '(29|30)' : '60'}$`)),
  )
  expect(await app.database.knex('crm_budgets').where({ account_id: over }).first()).toEqual(before)
  expect((await Promise.all(tenants.map(({ account }) => entriesOf(account.id)))).map(({ length }) => length)).toEqual([1, 0, 1, 1]) // prettier-ignore
})

test('an account that is gone is 401 at once, whatever it sends, and leaves no budget behind', async () => {
  const [gone, there] = await buildTenants(app, 2)
  await app.database.knex('accounts').where({ id: gone!.account.id }).del()
  const { create, callOf } = entryCalls(app)
  const outcomes = await Promise.allSettled([create(callOf(gone!)), create(callOf(there!))])
  expect(outcomes).toMatchObject([{ reason: { code: 'invalid_access_token' } }, { status: 'fulfilled' }])
  for (const body of [JSON.stringify(leadBody(gone!.lab)), '{}', 'x'.repeat(300 * 1024)]) {
    expect((await post(gone!.account, body)).status).toBe(401)
  }
  expect(await app.database.knex('crm_budgets').where({ account_id: gone!.account.id })).toEqual([])
  expect(await countedCalls(app, there!.account.id)).toBe(1)
})

test('what is refused before its lead is looked at counts once, and says what is left', async () => {
  const account = await buildAccount(app)
  const lab = await buildLab(app, account)
  const lead = JSON.stringify(leadBody(lab))
  const asked = [
    () => post(account, '{}'),
    () => post(account, 'no JSON'),
    () => post(account, 'x'.repeat(300 * 1024)),
    () => post(account, lead, { 'content-type': 'text/plain' }),
    () => post(account, JSON.stringify(leadBody(lab, { scheduledAt: '2026-02-30T10:00:00Z' }))),
    () => post(account, JSON.stringify(leadBody(lab, { branchID: account.id }))),
    () => post(account, lead),
    () => post(account, lead),
  ]
  const answers = []
  for (const ask of asked) answers.push(await ask())
  expect(answers.map(({ status }) => status)).toEqual([400, 400, 413, 415, 400, 403, 200, 409])
  expect(answers.map(({ headers }) => headers.ratelimit)).toEqual(asked.map((_, n) => `"crm";r=${59 - n};t=60`))
  expect(await countedCalls(app, account.id)).toBe(8)
})

test('429 comes before every fault also in a process that has not refused the account yet', async () => {
  const account = await buildAccount(app)
  const lab = await buildLab(app, account)
  await countCalls(account.id, ...Array(CRM_CALLS).fill(-MINUTE / 2))
  for (const body of [JSON.stringify(leadBody(lab)), '{}', 'no JSON', 'x'.repeat(300 * 1024)]) {
    const elsewhere = await startTestApp({ mysqlUrl: app.mysqlUrl, crmCalls: CRM_CALLS })
    const answer = await elsewhere.call('POST', PATH, { token: account.token, rawBody: body })
    await elsewhere.close()
    expect([answer.status, answer.headers.ratelimit]).toEqual([429, expect.stringMatching(/^"crm";r=0;t=(29|30)$/)])
  }
  expect(await entriesOf(account.id)).toEqual([])
})

test('a clock that was set back keeps an account out for a minute, and nobody of its group', async () => {
  const [ahead, full, free] = await buildTenants(app, 3)
  await countCalls(ahead!.account.id, 10 * MINUTE, 10 * MINUTE)
  await countCalls(full!.account.id, ...Array(CRM_CALLS).fill(10 * MINUTE))
  const { create, callOf } = entryCalls(app)
  const calls = [callOf(ahead!), callOf(full!), callOf(free!)]
  const outcomes = await Promise.allSettled(calls.map((call) => create(call)))
  expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled'])
  expect(outcomes[1]).toMatchObject({ reason: { code: 'rate_limited' } })
  expect(calls.map(({ res }) => res.getHeader('RateLimit'))).toEqual([
    '"crm";r=57;t=60',
    '"crm";r=0;t=60',
    '"crm";r=59;t=60',
  ])
})

test('an account whose budget somebody holds keeps the others of its group waiting for one lock at most', async () => {
  const tenants = await buildTenants(app, 3)
  const held = tenants[0]!.account.id
  await countCalls(held, -MINUTE / 2)
  const trx = await other.knex.transaction()
  await trx('crm_budgets').where({ account_id: held }).forUpdate().first()
  const { create, callOf } = entryCalls(app)
  const [waiting, ...others] = tenants.map((tenant) => create(callOf(tenant)))
  let hasEnded = false
  void waiting!.catch(() => {}).finally(() => (hasEnded = true))
  try {
    await Promise.all(others)
    expect(hasEnded).toBe(false)
  } finally {
    await trx.commit()
  }
  await waiting
  const counts = await Promise.all(tenants.map(({ account }) => countedCalls(app, account.id)))
  expect(counts).toEqual([2, 1, 1])
})
