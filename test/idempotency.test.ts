/**
 * Proves of the contract: "For 24 hours the same key with the same body gets the first answer again, with
 * `Idempotent-Replayed: true`, whatever it was but a 401, 429 or 5xx; the same key with another body is refused with 422."
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { updateOperatorValues } from '../src/billing/operator-lists-repository.ts'
import type { Lab } from '../src/catalogue/labs-repository.ts'
import { hashValue } from '../src/crypto.ts'
import { hashRequest } from '../src/idempotency/idempotency-rules.ts'
import { client, startTestApp, type TestApp } from './support/app.ts'
import {
  buildAccount,
  buildLab,
  leadBody,
  newContact,
  nextNumber,
  subscribeBody,
  type TestAccount,
} from './support/builders.ts'

const CALLS = 64
const DAY_MS = 86_400_000

let app: TestApp
let otherApp: TestApp
let account: TestAccount
let lab: Lab

beforeAll(async () => {
  app = await startTestApp()
  otherApp = await startTestApp({ mysqlUrl: app.mysqlUrl })
  account = await buildCaller()
  lab = await buildLab(app, account)
})
afterAll(async () => {
  await otherApp.close()
  await app.close()
})

async function buildCaller(): Promise<TestAccount> {
  const built = await buildAccount(app)
  await app.database.transaction((trx) => updateOperatorValues(trx, built.id, 'lead_source', ['Partner']))
  return built
}

interface Creation {
  path: string
  table: string
  body: (ofLab: Lab, fields?: Record<string, unknown>) => Record<string, unknown>
  resultOf: (body: any) => unknown
  otherFields: Record<string, unknown>
}

const LEAD: Creation = {
  path: '/client/crm/lead/create',
  table: 'entries',
  body: leadBody,
  resultOf: (body) => body.leadId,
  otherFields: { first_name: 'Bela' },
}
const SUBSCRIPTION: Creation = {
  path: '/client/events/subscribe',
  table: 'webhooks',
  body: subscribeBody,
  resultOf: (body) => body.data.secret,
  otherFields: { events: ['bill.created'] },
}
const PRE_BOOKING: Creation = {
  path: '/client/billing/create',
  table: 'pre_bookings',
  body: (ofLab, fields = {}) => ({
    labID: ofLab.id,
    patient_details: { first_name: 'Farhan', gender: 'male', age: 51, age_type: 'year' },
    integrator_id: `PB-${nextNumber()}`,
    lead_source: 'Partner',
    unmapped_tests: ['Serum bilirubin'],
    ...fields,
  }),
  resultOf: (body) => body.preBookingID,
  otherFields: { unmapped_tests: ['Serum iron'] },
}
const CREATIONS: [string, Creation][] = [
  ['a lead', LEAD],
  ['a webhook', SUBSCRIPTION],
  ['a pre-booking', PRE_BOOKING],
]

const newKey = () => `key-${nextNumber()}`
const send = ({ path }: Creation, key: string | undefined, body: unknown, caller = account, via = app) =>
  via.call('POST', path, {
    token: caller.token,
    body,
    headers: key === undefined ? {} : { 'idempotency-key': key },
  })
const isReplay = ({ headers }: { headers: Record<string, unknown> }) => headers['idempotent-replayed'] === 'true'
const countOf = async (table: string, ofAccount = account) =>
  Number((await app.database.knex(table).where({ account_id: ofAccount.id }).count({ n: '*' }).first())!.n)
const findKeyRows = (key: string) => app.database.knex('idempotency_keys').where({ key_hash: hashValue(key) })

describe.each(CREATIONS)('for %s', (_, creation) => {
  test('the same key and body get the first answer again and do nothing', async () => {
    const key = newKey()
    const body = creation.body(lab)
    const first = await send(creation, key, body)
    const before = [await countOf(creation.table), app.hints()]
    // Also with its fields in another order, and from another process.
    const reordered = Object.fromEntries(Object.entries(body).reverse())
    const second = await send(creation, key, reordered, account, otherApp)
    expect([first.status, second.status]).toEqual([200, 200])
    expect([isReplay(first), isReplay(second)]).toEqual([false, true])
    expect(second.body).toEqual(first.body)
    expect(creation.resultOf(second.body)).toEqual(expect.any(String))
    expect([await countOf(creation.table), app.hints()]).toEqual(before)
  })

  test('another body is 422, and nothing comes of it', async () => {
    const key = newKey()
    const body = creation.body(lab)
    await send(creation, key, body)
    const before = await countOf(creation.table)
    for (const other of [{ ...body, ...creation.otherFields }, {}]) {
      const answer = await send(creation, key, other)
      expect([answer.status, answer.body.error.code]).toEqual([422, 'idempotency_mismatch'])
      expect(isReplay(answer)).toBe(false)
    }
    expect(await countOf(creation.table)).toBe(before)
    expect(isReplay(await send(creation, key, body))).toBe(true)
  })

  test('of 64 at once with one key over two processes one does it, and all have its answer or 409 with Retry-After', async () => {
    const key = newKey()
    const body = creation.body(lab)
    const before = await countOf(creation.table)
    const answers = await Promise.all(
      Array.from({ length: CALLS }, (_, n) => send(creation, key, body, account, n % 2 === 0 ? app : otherApp)),
    )
    const accepted = answers.filter(({ status }) => status === 200)
    const waiting = answers.filter(({ status }) => status === 409)
    expect(accepted.length + waiting.length).toBe(CALLS)
    expect(new Set(accepted.map((answer) => creation.resultOf(answer.body))).size).toBe(1)
    expect(accepted.filter((answer) => !isReplay(answer))).toHaveLength(1)
    for (const { headers, body: refusal } of waiting) {
      expect([refusal.error.code, headers['retry-after']]).toEqual(['idempotency_in_progress', '1'])
    }
    expect(await countOf(creation.table)).toBe(before + 1)
    expect(await findKeyRows(key)).toHaveLength(1)
  })

  test('a refusal is answered again, even when the request would pass by now', async () => {
    const ownLab = await buildLab(app, account, { active: false })
    const key = newKey()
    const body = creation.body(ownLab)
    const first = await send(creation, key, body)
    await app.database.knex('labs').where({ id: ownLab.id }).update({ active: true })
    const second = await send(creation, key, body)
    expect([first.status, second.status, isReplay(first), isReplay(second)]).toEqual([403, 403, false, true])
    expect(second.body.error).toEqual(first.body.error)
    expect([second.body.requestId, first.body.requestId]).toEqual([
      second.headers['x-request-id'],
      first.headers['x-request-id'],
    ])
    expect((await send(creation, newKey(), body)).status).toBe(200)
  })

  test('a success is answered again, even when the request would be refused by now', async () => {
    const ownLab = await buildLab(app, account)
    const key = newKey()
    const body = creation.body(ownLab)
    const first = await send(creation, key, body)
    await app.database.knex('labs').where({ id: ownLab.id }).update({ active: false })
    const second = await send(creation, key, body)
    expect([second.status, second.body, isReplay(second)]).toEqual([200, first.body, true])
  })

  test('a request that breaks the contract is refused again, as the first answer of its key', async () => {
    const key = newKey()
    const body = { ...creation.body(lab), labID: 5, branchID: 5 }
    const answers = [await send(creation, key, body), await send(creation, key, body)]
    expect(answers.map(({ status }) => status)).toEqual([400, 400])
    expect(answers.map(isReplay)).toEqual([false, true])
    expect((await send(creation, key, creation.body(lab))).status).toBe(422)
  })

  test("another account's or operation's same key is another key", async () => {
    const key = newKey()
    const other = await buildCaller()
    const otherLab = await buildLab(app, other)
    const answers = [await send(creation, key, creation.body(lab))]
    answers.push(await send(creation, key, creation.body(otherLab), other))
    for (const [, elsewhere] of CREATIONS.filter(([, known]) => known !== creation)) {
      answers.push(await send(elsewhere, key, elsewhere.body(lab)))
    }
    expect(answers.map((answer) => [answer.status, isReplay(answer)])).toEqual(Array(4).fill([200, false]))
  })

  test('after 24 hours the key counts as never seen', async () => {
    const caller = await buildCaller()
    const ownLab = await buildLab(app, caller)
    const key = newKey()
    const body = creation.body(ownLab, { contact: newContact() })
    const opened = app.clock.now().toISOString()
    const first = await send(creation, key, body, caller)
    const at = async (milliseconds: number, sent: unknown) => {
      app.clock.set(new Date(Date.parse(opened) + milliseconds).toISOString())
      const { token } = await app.accessTokens.issue(caller.id)
      return send(creation, key, sent, { ...caller, token })
    }
    try {
      expect((await at(DAY_MS - 1, body)).body).toEqual(first.body)
      const other = { ...body, ...creation.otherFields }
      const anew = await at(DAY_MS, other)
      expect([anew.status, isReplay(anew)]).toEqual([200, false])
      expect(creation.resultOf(anew.body)).not.toBe(creation.resultOf(first.body))
      expect((await at(2 * DAY_MS - 1, other)).body).toEqual(anew.body)
      expect((await at(2 * DAY_MS - 1, body)).status).toBe(422)
      expect(await countOf(creation.table, caller)).toBe(2)
    } finally {
      app.clock.set(opened)
    }
  })

  test('an answer that fails leaves neither the key nor what it tells of', async () => {
    const { knex } = app.database
    const key = newKey()
    const body = creation.body(lab)
    const before = await countOf(creation.table)
    await knex.raw(
      `CREATE TRIGGER refuse_answers BEFORE UPDATE ON idempotency_keys FOR EACH ROW SIGNAL SQLSTATE '45000'`,
    )
    try {
      expect((await send(creation, key, body)).status).toBe(500)
    } finally {
      await knex.raw('DROP TRIGGER refuse_answers')
    }
    expect([await countOf(creation.table), await findKeyRows(key)]).toEqual([before, []])
    await knex.raw(`CREATE TRIGGER refuse_rows AFTER INSERT ON ${creation.table} FOR EACH ROW SIGNAL SQLSTATE '45000'`)
    try {
      expect((await send(creation, key, body)).status).toBe(500)
    } finally {
      await knex.raw('DROP TRIGGER refuse_rows')
    }
    expect([await countOf(creation.table), await findKeyRows(key)]).toEqual([before, []])
    const retried = await send(creation, key, body)
    expect([retried.status, isReplay(retried)]).toEqual([200, false])
  })

  test('while the first one runs the second waits, then is 409 with Retry-After; after its rollback the second runs', async () => {
    const key = newKey()
    const body = creation.body(lab)
    const { operationId } = client.operations.find(({ path }) => path === creation.path)!
    const running = await app.database.knex.transaction()
    await running('idempotency_keys').insert({
      account_id: account.id,
      operation: operationId,
      key_hash: hashValue(key),
      body_hash: hashRequest(app.keys, { body, path: {}, query: {} }),
      created_at: app.clock.now(),
    })
    let second: ReturnType<typeof send>
    try {
      const refused = await send(creation, key, body)
      expect([refused.status, refused.body.error.code]).toEqual([409, 'idempotency_in_progress'])
      expect([refused.headers['retry-after'], isReplay(refused)]).toEqual(['1', false])
      second = send(creation, key, body)
      await expect.poll(countWaiting, { interval: 20 }).toBeGreaterThan(0)
    } finally {
      await running.rollback()
    }
    const answer = await second
    expect([answer.status, isReplay(answer)]).toEqual([200, false])
    expect(isReplay(await send(creation, key, body))).toBe(true)
  })
})

async function countWaiting(): Promise<number> {
  const [rows] = await app.database.knex.raw(
    `SELECT COUNT(*) AS n FROM information_schema.processlist
      WHERE info LIKE '%INSERT INTO idempotency_keys%' AND id <> CONNECTION_ID()`,
  )
  return Number(rows[0].n)
}

test("a day's duplicate is 409 again, with the entry that was there", async () => {
  const body = leadBody(lab)
  const { leadId } = (await send(LEAD, undefined, body)).body
  const key = newKey()
  const answers = [await send(LEAD, key, body), await send(LEAD, key, body)]
  expect(answers.map((answer) => [answer.status, answer.body.error.leadId])).toEqual(Array(2).fill([409, leadId]))
  expect(answers.map(isReplay)).toEqual([false, true])
})

test('without the header nothing is kept, and a repeat is what it was', async () => {
  const keys = () => countOf('idempotency_keys')
  const before = await keys()
  const body = leadBody(lab)
  expect((await send(LEAD, undefined, body)).status).toBe(200)
  expect((await send(LEAD, undefined, body)).status).toBe(409)
  const subscription = subscribeBody(lab)
  const ids = [await send(SUBSCRIPTION, undefined, subscription), await send(SUBSCRIPTION, undefined, subscription)]
  expect(new Set(ids.map((answer) => answer.body.data._id)).size).toBe(2)
  expect(await keys()).toBe(before)
})

test('401 and 429 are not kept, and a repeat counts as a CRM call', async () => {
  const limited = await startTestApp({ mysqlUrl: app.mysqlUrl, crmCalls: 2 })
  try {
    const caller = await buildCaller()
    const body = leadBody(await buildLab(app, caller))
    const key = newKey()
    const answers = [await send(LEAD, key, body, { ...caller, token: 'x' }, limited)]
    for (let n = 0; n < 3; n++) answers.push(await send(LEAD, key, body, caller, limited))
    expect(answers.map((answer) => [answer.status, isReplay(answer)])).toEqual([
      [401, false],
      [200, false],
      [200, true],
      [429, false],
    ])
    expect(await findKeyRows(key)).toMatchObject([{ status: 200 }])
  } finally {
    await limited.close()
  }
})

test('neither the key nor the secret in the answer is stored as it is', async () => {
  const key = newKey()
  const { secret } = (await send(SUBSCRIPTION, key, subscribeBody(lab))).body.data
  const [row] = await findKeyRows(key)
  expect(row.answer.includes(Buffer.from(secret))).toBe(false)
  expect(row.answer.includes(Buffer.from(lab.id))).toBe(false)
  expect(JSON.stringify(row)).not.toContain(key)
  // Moved to another key it does not open.
  const other = newKey()
  const body = subscribeBody(lab)
  await send(SUBSCRIPTION, other, body)
  await findKeyRows(other).update({ answer: row.answer })
  expect((await send(SUBSCRIPTION, other, body)).status).toBe(500)
})
