import { once } from 'node:events'
import { request } from 'node:http'
import { createConnection } from 'mysql2/promise'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { driverOptions } from '../db/connection.ts'
import { monotonicMs } from '../src/clock.ts'
import { startTestApp, type TestApp } from './support/app.ts'
import { buildAccount, buildLab, buildOperatorKey, leadBody, type TestAccount } from './support/builders.ts'

const MOST_WAITING = 20
const CALLS = 60

let app: TestApp
let account: TestAccount

beforeAll(async () => {
  app = await startTestApp({ mostWaiting: MOST_WAITING })
  account = await buildAccount(app)
})
afterAll(() => app.close())

/** As it is sent to a proxy, and to be taken by everybody (RFC 9112 3.2.2). */
async function statusOfAbsoluteTarget(path: string): Promise<number> {
  const headers = { authorization: `Bearer ${account.token}` }
  const [answer] = await once(
    request({ host: '127.0.0.1', port: app.port, path: `http://lis.example${path}`, headers }).end(),
    'response',
  )
  answer.resume()
  return answer.statusCode
}

test('of more calls than can be answered soon some are 503 with Retry-After at once, and all others are answered', async () => {
  const lab = await buildLab(app, account)
  const key = await buildOperatorKey(app)
  const calls = { token: account.token }
  // Known from here on, for half a second.
  expect((await app.call('GET', '/client/labs', calls)).status).toBe(200)
  const other = await createConnection(driverOptions(app.mysqlUrl))
  await other.query('LOCK TABLES labs WRITE')
  const startedAtMs = monotonicMs()
  const refusedAtMs: number[] = []
  const answers = Array.from({ length: CALLS }, async (_, n) => {
    const answer =
      n % 2
        ? await app.call('GET', '/client/labs', calls)
        : await app.call('POST', '/client/crm/lead/create', { ...calls, body: leadBody(lab) })
    if (answer.status === 503) refusedAtMs.push(monotonicMs())
    return answer
  })
  while (refusedAtMs.length === 0 && monotonicMs() - startedAtMs < 3000)
    await new Promise((done) => setTimeout(done, 10))
  const live = await app.call('GET', '/livez')
  const staff = await app.call('GET', '/operator/accounts', { token: key })
  const asToProxy = await statusOfAbsoluteTarget('/client/labs')
  await other.query('UNLOCK TABLES')
  await other.end()

  expect([live.status, staff.status, asToProxy]).toEqual([200, 200, 503])
  const refused = []
  const leadIds: string[] = []
  for (const answer of await Promise.all(answers)) {
    if (answer.status === 503) refused.push(answer)
    else expect([answer.status, answer.body]).toEqual([200, answer.body])
    if (answer.body.leadId) leadIds.push(answer.body.leadId)
  }
  expect(refused.length).toBeGreaterThan(0)
  expect(CALLS - refused.length).toBeGreaterThanOrEqual(MOST_WAITING)
  for (const { headers, body } of refused) {
    expect([headers['retry-after'], body.error.code]).toEqual(['1', 'overloaded'])
    expect(headers['x-request-id']).toBe(body.requestId)
  }
  const stored: string[] = await app.database.knex('events').where({ account_id: account.id }).pluck('subject_id')
  expect(stored.sort()).toEqual(leadIds.sort())
  expect(await statusOfAbsoluteTarget('/client/labs')).toBe(200)
  expect((await app.call('GET', '/client/labs', calls)).status).toBe(200)
})
