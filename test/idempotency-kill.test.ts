/**
 * Proves of the decisions: "key and answer are written in the request's own transaction". An API process is killed at a
 * statement of a request with an `Idempotency-Key`, before the statement or after it: the key is never there without its
 * answer nor the answer without what it tells of, and the repeat gets the one result.
 */
import { randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { startDatabaseProxy, type DatabaseProxy, type When } from '../scripts/crash/database-proxy.ts'
import { updateOperatorValues } from '../src/billing/operator-lists-repository.ts'
import type { Lab } from '../src/catalogue/labs-repository.ts'
import { hashValue } from '../src/crypto.ts'
import { startApiProcess, type ApiProcess } from './support/api-process.ts'
import { startTestApp, type TestApp } from './support/app.ts'
import { buildAccount, buildLab, leadBody, subscribeBody } from './support/builders.ts'

const folder = mkdtempSync(join(tmpdir(), 'lis-idempotency-kill-'))
const secretsKey = randomBytes(32).toString('base64')
let app: TestApp
let proxy: DatabaseProxy
let api: ApiProcess | undefined

beforeAll(async () => {
  // Only for its database and for what the builders write; every call goes to the process behind the proxy.
  app = await startTestApp({ serves: { client: true, operator: false } })
  proxy = await startDatabaseProxy(app.mysqlUrl)
})
afterAll(async () => {
  await api?.kill()
  proxy.close()
  await app.close()
  rmSync(folder, { recursive: true, force: true })
})

const start = async () => (api ??= await startApiProcess({ mysqlUrl: proxy.mysqlUrl, dataDir: folder, secretsKey }))

function preBookingBody(lab: Lab): Record<string, unknown> {
  return {
    labID: lab.id,
    patient_details: { first_name: 'Farhan', gender: 'male', age: 51, age_type: 'year' },
    integrator_id: 'PB-1',
    lead_source: 'Partner',
    unmapped_tests: ['Serum bilirubin'],
  }
}

/** @returns undefined when the connection ended without an answer */
async function post(path: string, token: string, body: object, key?: string) {
  try {
    const { baseUrl } = await start()
    const response = await fetch(baseUrl + path, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        authorization: `Bearer ${token}`,
        ...(key === undefined ? {} : { 'idempotency-key': key }),
      },
      body: JSON.stringify(body),
    })
    const isReplay = response.headers.get('idempotent-replayed') === 'true'
    return { status: response.status, isReplay, body: (await response.json()) as Record<string, any> }
  } catch {
    return undefined
  }
}

async function prepareCaller() {
  const account = await buildAccount(app)
  await app.database.transaction((trx) => updateOperatorValues(trx, account.id, 'lead_source', ['Partner']))
  const credentials = { clientID: account.clientId, clientSecret: account.clientSecret }
  const token = (await post('/client/auth/token', '', credentials))!.body.authToken as string
  return { account, token, lab: await buildLab(app, account) }
}

/** One query of several statements, the commit at its end; or one that is nothing else. The CRM budget has a commit of its own. */
const COMMIT = /UPDATE idempotency_keys[^]*COMMIT$|^COMMIT;?$/

const POINTS: [what: string, statement: RegExp, when: When, isDone: boolean][] = [
  ['when its key is claimed', /INSERT INTO idempotency_keys/, 'after', false],
  ['when its answer is kept and not committed', /UPDATE idempotency_keys/, 'within', false],
  ['before the commit', COMMIT, 'before', false],
  ['when it is committed and not answered', COMMIT, 'after', true],
]

describe.each([
  ['a lead', '/client/crm/lead/create', (lab: Lab) => leadBody(lab), 'entries'],
  ['a pre-booking', '/client/billing/create', preBookingBody, 'pre_bookings'],
  ['a webhook', '/client/events/subscribe', (lab: Lab) => subscribeBody(lab), 'webhooks'],
])('a request for %s', (_, path, bodyOf, table) => {
  test.each(POINTS)('whose process is killed %s leaves all of it or nothing', async (what, statement, when, isDone) => {
    const { account, token, lab } = await prepareCaller()
    const { knex } = app.database
    const rows = async () => Number((await knex(table).where({ account_id: account.id }).count({ n: '*' }).first())!.n)
    const key = what.replaceAll(' ', '-')
    const keys = () => knex('idempotency_keys').where({ account_id: account.id, key_hash: hashValue(key) })
    const body = bodyOf(lab)

    const victim = await start()
    const hit = new Promise<void>((resolve) => proxy.arm({ statement, when }, () => void victim.kill().then(resolve)))
    const [first] = await Promise.all([post(path, token, body, key), hit])
    api = undefined
    expect(first).toBeUndefined()
    await expect.poll(countOpenTransactions, { interval: 20, timeout: 10_000 }).toBe(0)
    expect(await rows()).toBe(isDone ? 1 : 0)
    const kept = await keys()
    expect(kept).toHaveLength(isDone ? 1 : 0)
    for (const { answer } of kept) expect(answer).toBeInstanceOf(Buffer)

    const again = (await post(path, token, body, key))!
    expect([again.status, again.isReplay]).toEqual([200, isDone])
    const last = (await post(path, token, body, key))!
    expect([last.status, last.isReplay, last.body]).toEqual([200, true, again.body])
    expect(await rows()).toBe(1)
  })
})

/** Of the killed process: the server ends them when it sees the connection gone. */
async function countOpenTransactions(): Promise<number> {
  const [rows] = await app.database.knex.raw(
    `SELECT COUNT(*) AS n FROM information_schema.innodb_trx t
      JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id
      WHERE p.db = DATABASE() AND p.id <> CONNECTION_ID()`,
  )
  return Number(rows[0].n)
}
