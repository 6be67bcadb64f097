/**
 * Proves of the specification:
 * - "Request rate: 60 requests per minute per account: every CRM endpoint (branches, tests, packages, lead create)".
 * And of the decisions: one budget over the four operations, never more than 60 accepted in any 60 s over all API processes;
 * every authenticated call counts, whatever its answer, but those answered 429.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createBatchPool, type BatchPool } from '../../db/batch.ts'
import { driverOptions, SESSION_STATEMENTS } from '../../db/connection.ts'
import { ConnectionWatch } from '../../db/silent-connection.ts'
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import { CRM_CALLS, budgetOf, movedBack, packCalls, unpackCalls } from '../../src/crm/crm-budget-rules.ts'
import { claimCrmCall } from '../../src/crm/crm-budgets-repository.ts'
import { newId } from '../../src/ids.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { buildAccount, buildLab, leadBody, subscribeBody, type TestAccount } from '../support/builders.ts'

const CALLS = 60
const POLICY = '"crm";q=60;w=60'
const SECOND = 1_000_000

let apps: TestApp[]
let app: TestApp

beforeAll(async () => {
  app = await startTestApp({ crmCalls: CRM_CALLS })
  const others = [1, 2].map(() => startTestApp({ crmCalls: CRM_CALLS, mysqlUrl: app.mysqlUrl }))
  apps = [app, ...(await Promise.all(others))]
})
afterAll(async () => {
  for (const each of apps.toReversed()) await each.close()
})

const listLabs = (account: TestAccount, via = app) => via.call('GET', '/client/labs', { token: account.token })
const post = (account: TestAccount, body: unknown, headers = {}) =>
  app.call('POST', '/client/crm/lead/create', { token: account.token, body, headers })
const remainingOf = (answer: { headers: Record<string, unknown> }) =>
  Number(/^"crm";r=(\d+);t=\d+$/.exec(String(answer.headers.ratelimit))?.[1])

/** As if that much time had passed for the account. */
async function pass(account: { id: string }, seconds: number): Promise<void> {
  const { knex } = app.database
  const { calls } = await knex('crm_budgets').where({ account_id: account.id }).first('calls')
  const moved = unpackCalls(calls).map((at) => Math.max(0, at - seconds * SECOND))
  await knex('crm_budgets')
    .where({ account_id: account.id })
    .update({ calls: packCalls(moved) })
}

async function useUp(account: TestAccount, count = CALLS): Promise<void> {
  const answers = await Promise.all(Array.from({ length: count }, () => listLabs(account)))
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]))
}

describe('of the CRM calls of an account', () => {
  test('exactly 60 are accepted when 300 come at once through three processes, without a fault', async () => {
    const [account, other] = [await buildAccount(app), await buildAccount(app)]
    const calls = Array.from({ length: 300 }, (_, n) => listLabs(account, apps[n % 3]))
    const others = Array.from({ length: 60 }, (_, n) => listLabs(other, apps[n % 3]))
    const statuses = (await Promise.all(calls)).map(({ status }) => status)
    expect(statuses.filter((status) => status === 200)).toHaveLength(60)
    expect(statuses.filter((status) => status === 429)).toHaveLength(240)
    // Another account has the whole of its own.
    expect((await Promise.all(others)).map(({ status }) => status)).toEqual(Array(60).fill(200))
    expect((await listLabs(other)).status).toBe(429)
  })

  test('all four operations share the 60, whatever their answer, and no other operation counts', async () => {
    const account = await buildAccount(app)
    const lab = await buildLab(app, account)
    const { token } = account
    const query = { branchID: lab.id }
    const body = leadBody(lab)
    const answers = [
      await listLabs(account),
      await app.call('GET', '/client/crm/tests', { token, query }),
      await app.call('GET', '/client/crm/tests', { token }),
      await app.call('GET', '/client/crm/packages', { token, query: { branchID: 'x' } }),
      await post(account, body),
      await post(account, body),
      await post(account, { ...body, integratorID: 5 }),
      await post(account, 'x'.repeat(300 * 1024)),
      await post(account, body, { 'content-type': 'text/plain' }),
    ]
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 400, 403, 200, 409, 400, 413, 415])
    expect(answers.map(remainingOf)).toEqual([59, 58, 57, 56, 55, 54, 53, 52, 51])
    expect(new Set(answers.map(({ headers }) => headers['ratelimit-policy']))).toEqual(new Set([POLICY]))
    const elsewhere = await app.call('POST', '/client/events/subscribe', { token, body: subscribeBody(lab) })
    expect([elsewhere.status, elsewhere.headers.ratelimit]).toEqual([200, undefined])
    expect(remainingOf(await listLabs(account))).toBe(50)
  })

  test('a call without a token, to no path or with another method does not count', async () => {
    const account = await buildAccount(app)
    const { token } = account
    await app.call('GET', '/client/labs', {})
    await app.call('DELETE', '/client/labs', { token })
    await app.call('GET', '/client/lab', { token })
    expect(remainingOf(await listLabs(account))).toBe(59)
  })
})

describe('the 61st call', () => {
  let account: TestAccount
  let lab: Lab
  beforeAll(async () => {
    account = await buildAccount(app)
    lab = await buildLab(app, account)
    await useUp(account)
  })

  test("is 429 in the specification's shape, says when to come again, and does nothing", async () => {
    const { status, headers, body } = await post(account, leadBody(lab))
    const seconds = Number(headers['retry-after'])
    expect(status).toBe(429)
    expect(seconds).toBeGreaterThan(0)
    expect(seconds).toBeLessThanOrEqual(60)
    expect(body).toEqual({
      success: false,
      status: 429,
      message: 'Too Many Requests',
      error: {
        details: `more than 60 CRM requests in 60 seconds; try again in ${seconds} seconds`,
        code: 'rate_limited',
      },
      requestId: expect.any(String),
    })
    expect([headers['ratelimit-policy'], headers.ratelimit]).toEqual([POLICY, `"crm";r=0;t=${seconds}`])
    expect(await app.database.knex('entries').where({ account_id: account.id })).toEqual([])
  })

  test('is 429 after 401, and before everything that the request could be faulted for', async () => {
    const oversized = 'x'.repeat(300 * 1024)
    expect((await app.call('POST', '/client/crm/lead/create', { rawBody: oversized })).status).toBe(401)
    expect((await post(account, oversized)).status).toBe(429)
    expect((await post(account, {}, { 'content-type': 'text/plain' })).status).toBe(429)
    expect((await app.call('GET', '/client/crm/tests', { token: account.token })).status).toBe(429)
    const body = subscribeBody(lab)
    expect((await app.call('POST', '/client/events/subscribe', { token: account.token, body })).status).toBe(200)
  })

  test('succeeds after the wait that it was told, and those that were refused did not count', async () => {
    const alone = await buildAccount(app)
    await useUp(alone)
    await pass(alone, 58)
    const refused = await Promise.all(apps.flatMap((via) => [listLabs(alone, via), listLabs(alone, via)]))
    expect(refused.map(({ status }) => status)).toEqual(Array(6).fill(429))
    const waits = refused.map(({ headers }) => Number(headers['retry-after']))
    expect(waits.every((seconds) => seconds === 1 || seconds === 2)).toBe(true)
    // For once in real time, as a client does it: no clock of ours could prove that the wait is enough.
    await delay(Math.max(...waits) * 1000)
    const answers = await Promise.all(apps.flatMap((via) => Array.from({ length: 20 }, () => listLabs(alone, via))))
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]))
  })

  test('costs the database nothing while no process could accept it', async () => {
    const { knex } = app.database
    const before = await knex('crm_budgets').where({ account_id: account.id }).first()
    const trx = await knex.transaction()
    await trx('crm_budgets').where({ account_id: account.id }).forUpdate().first()
    const answers = await Promise.all(Array.from({ length: 100 }, () => listLabs(account)))
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([429]))
    await trx.rollback()
    expect(await knex('crm_budgets').where({ account_id: account.id }).first()).toEqual(before)
  })
})

test('the window slides: each call makes room when it is 60 s old, not all of them at once', async () => {
  const account = await buildAccount(app)
  await useUp(account, 40)
  await pass(account, 40)
  await useUp(account, 20)
  // Through another process: one that has refused asks again only when the time has really passed.
  expect((await listLabs(account, apps[1])).status).toBe(429)
  await pass(account, 20)
  await useUp(account, 40)
  expect((await listLabs(account)).status).toBe(429)
})

describe('by the clock of the database', () => {
  let session: BatchPool
  beforeAll(() => {
    // One connection, so that the time set on it holds for every call.
    session = createBatchPool(driverOptions(app.mysqlUrl), SESSION_STATEMENTS, 1, new ConnectionWatch())
  })
  afterAll(() => session.close())

  const START = Date.UTC(2026, 10, 20) / 1000
  const at = async (accountId: string, seconds: number) => {
    await session.transaction((send) => send([{ sql: `SET timestamp = ${(START + seconds).toFixed(6)}` }]))
    return claimCrmCall(session, accountId, CALLS)
  }

  test('no 60 s ever hold more than 60 accepted calls, and 60 are reached, at any pace for ten minutes', async () => {
    const account = newId(0)
    const accepted: number[] = []
    let seed = 7
    const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647
    for (let now = 0; now < 600; now += random() ** 3 * (Math.floor(now / 60) % 2 === 0 ? 1 : 4)) {
      if ((await at(account, now)).isAccepted) accepted.push(now)
    }
    const windows = accepted.map((from) => accepted.filter((time) => time >= from && time < from + 59.999999).length)
    expect(Math.max(...windows)).toBe(CALLS)
  })

  test('a call each 1.1 s, or each second, is never refused', async () => {
    for (const pace of [1.1, 1]) {
      const account = newId(0)
      for (let n = 0; n < 130; n++) expect((await at(account, n * pace)).isAccepted).toBe(true)
    }
  })

  test('the wait that is told is enough, and a second less is not', async () => {
    const account = newId(0)
    for (let n = 0; n < CALLS; n++) await at(account, n * 0.1)
    const refused = await at(account, 10.05)
    expect(refused).toMatchObject({ isAccepted: false, remaining: 0, moreInMs: 49_950 })
    expect((await at(account, 10.05 + 49)).isAccepted).toBe(false)
    expect((await at(account, 10.05 + 50)).isAccepted).toBe(true)
  })

  test('a clock that is set back by an hour locks nobody out for longer than a minute, and lets no more through', async () => {
    const account = newId(0)
    for (let n = 0; n < CALLS; n++) await at(account, 3600 + n * 0.5)
    const back = await at(account, 0)
    expect([back.isAccepted, back.moreInMs]).toEqual([false, 30_500])
    expect((await at(account, 30)).isAccepted).toBe(false)
    expect((await at(account, 30.5)).isAccepted).toBe(true)
    let accepted = 1
    while ((await at(account, 60)).isAccepted) accepted += 1
    expect(accepted).toBe(60)
  })
})

test('a call that had to wait is counted when it was accepted, not when it came', async () => {
  const account = await buildAccount(app)
  await listLabs(account)
  const trx = await app.database.knex.transaction()
  await trx('crm_budgets').where({ account_id: account.id }).forUpdate().first()
  const waiting = claimCrmCall(apps[1]!.database.batch, account.id, CALLS)
  await trx.raw('SELECT SLEEP(0.3)')
  const [[{ now }]] = await trx.raw(`SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS now`)
  await trx.commit()
  expect((await waiting).isAccepted).toBe(true)
  const { calls } = await app.database.knex('crm_budgets').where({ account_id: account.id }).first('calls')
  expect(unpackCalls(calls).at(-1)).toBeGreaterThanOrEqual(Number(now))
})

describe('the rules', () => {
  test('a budget is what the last 60 s leave, and says when there is more', () => {
    expect(budgetOf([0, 0, 0], 100 * SECOND, true)).toMatchObject({ limit: 3, remaining: 3 })
    expect(budgetOf([0, 50 * SECOND, 99 * SECOND], 100 * SECOND, true)).toMatchObject({
      remaining: 1,
      moreInMs: 10_000,
    })
    expect(budgetOf([40 * SECOND, 50 * SECOND], 100 * SECOND, true)).toMatchObject({ remaining: 1 })
    expect(budgetOf([40 * SECOND + 1, 50 * SECOND], 100 * SECOND, false)).toMatchObject({ moreInMs: 0.001 })
  })

  test('calls moved back keep their distances, and those that are right stay', () => {
    expect(movedBack([0, 70, 100], 50)).toEqual([0, 20, 50])
    expect(movedBack([0, 20, 50], 50)).toEqual([0, 20, 50])
    expect(unpackCalls(packCalls([0, 1, 1_795_132_800_123_456]))).toEqual([0, 1, 1_795_132_800_123_456])
  })
})

test('no attempt of this file was answered with a fault of ours', () => {
  expect(apps.flatMap((each) => each.logs()).filter(({ status }) => Number(status) >= 500)).toEqual([])
})
