/**
 * Races over three real API processes on one database. Proves of the specification:
 * - "If a lead or booking with the same contact (or email) was already ingested today for the account, the call returns 409."
 * - "A party may have only one active webhook per event; a duplicate returns 409."
 * - "Request rate | 60 requests per minute per account | every CRM endpoint".
 * - "phase lead: auto-assigned to a telecaller".
 * - "Barcode | unique across the system".
 * And of the decisions: one login for a code, one change for an `Idempotency-Key`.
 */
import { randomBytes } from 'node:crypto'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { updateOperatorValues } from '../src/billing/operator-lists-repository.ts'
import type { Lab } from '../src/catalogue/labs-repository.ts'
import { startApiProcess, type ApiProcess } from './support/api-process.ts'
import { startTestApp, type TestApp } from './support/app.ts'
import {
  buildAccount,
  buildLab,
  buildParty,
  buildPatient,
  buildTelecaller,
  leadBody,
  newContact,
  subscribeBody,
  type TestAccount,
} from './support/builders.ts'

const CALLS = 64
const folder = mkdtempSync(join(tmpdir(), 'lis-races-'))
const secretsKey = randomBytes(32).toString('base64')
let processes: ApiProcess[]
let app: TestApp
let bases: string[]

beforeAll(async () => {
  // Only for its database and for what the builders write; every call goes to the processes.
  app = await startTestApp()
  const options = { mysqlUrl: app.mysqlUrl, dataDir: folder, secretsKey }
  processes = await Promise.all([0, 1, 2].map(() => startApiProcess(options)))
  bases = processes.map(({ baseUrl }) => baseUrl)
})
afterAll(async () => {
  await Promise.all(processes.map((process) => process.kill()))
  await app.close()
  rmSync(folder, { recursive: true, force: true })
})

interface Answer {
  status: number
  isReplay: boolean
  body: Record<string, any>
}

/** The n-th call goes to the n-th process in turn. */
async function post(n: number, path: string, body: object, token?: string, key?: string): Promise<Answer> {
  const response = await fetch(bases[n % bases.length] + path, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      ...(token ? { authorization: `Bearer ${token}` } : {}),
      ...(key ? { 'idempotency-key': key } : {}),
    },
    body: JSON.stringify(body),
  })
  const isReplay = response.headers.get('idempotent-replayed') === 'true'
  return { status: response.status, isReplay, body: (await response.json()) as Answer['body'] }
}

async function tokenOf(account: TestAccount): Promise<string> {
  const { clientId: clientID, clientSecret } = account
  return (await post(0, '/client/auth/token', { clientID, clientSecret })).body.authToken
}

const all = (call: (n: number) => Promise<Answer>, calls = CALLS) =>
  Promise.all(Array.from({ length: calls }, (_, n) => call(n)))

function statuses(answers: Answer[]): Record<number, number> {
  const counts: Record<number, number> = {}
  for (const { status } of answers) counts[status] = (counts[status] ?? 0) + 1
  return counts
}

/** Accounts share nothing, so a race of 64 over two of them stays below each one's budget of 60 CRM calls. */
async function twoAccounts() {
  return Promise.all(
    [0, 1].map(async () => {
      const account = await buildAccount(app)
      return { account, token: await tokenOf(account), lab: await buildLab(app, account) }
    }),
  )
}

test('of 64 leads with one contact, 32 for each of two accounts, each account takes exactly one', async () => {
  const tenants = await twoAccounts()
  const contact = newContact()
  const answers = await all((n) => {
    const { token, lab } = tenants[n % 2]!
    return post(n, '/client/crm/lead/create', leadBody(lab, { contact }), token)
  })
  expect(statuses(answers)).toEqual({ 200: 2, 409: 62 })
  const [day] = await app.database.knex('entries').where({ contact }).count({ n: '*' })
  expect(Number(day!.n)).toBe(2)
})

test('of 32 leads with one e-mail in different spellings exactly one is taken', async () => {
  const [{ token, lab }] = (await twoAccounts()) as [Awaited<ReturnType<typeof twoAccounts>>[0]]
  const spellings = ['Asha@Example.com', ' asha@example.com', 'ASHA@EXAMPLE.COM ', 'asha@example.com']
  const answers = await all(
    (n) => post(n, '/client/crm/lead/create', leadBody(lab, { contact: newContact(), email: spellings[n % 4] }), token),
    32,
  )
  expect(statuses(answers)).toEqual({ 200: 1, 409: 31 })
})

test('of crossing pairs no two that are taken share a contact or an e-mail', async () => {
  const [{ token, lab }] = (await twoAccounts()) as [Awaited<ReturnType<typeof twoAccounts>>[0]]
  const contacts = [newContact(), newContact(), newContact()]
  const emails = ['one@example.com', 'two@example.com', 'three@example.com']
  const pairs = Array.from({ length: 54 }, (_, n) => ({
    contact: contacts[n % 3]!,
    email: emails[Math.floor(n / 3) % 3]!,
  }))
  const answers = await all((n) => post(n, '/client/crm/lead/create', leadBody(lab, pairs[n]), token), pairs.length)
  expect(answers.every(({ status }) => status === 200 || status === 409)).toBe(true)
  const taken = pairs.filter((_, n) => answers[n]!.status === 200)
  expect(taken.length).toBeGreaterThan(0)
  expect(new Set(taken.map(({ contact }) => contact)).size).toBe(taken.length)
  expect(new Set(taken.map(({ email }) => email)).size).toBe(taken.length)
})

test('of 64 subscribes of one party with overlapping events each event has exactly one winner', async () => {
  const account = await buildAccount(app, { mode: 'party_scoped' })
  const token = await tokenOf(account)
  const lab = await buildLab(app, account)
  const corporate = await buildParty(app, account, 'corporate')
  const sets = [
    ['lead.created', 'booking.created'],
    ['booking.created', 'bill.created'],
    ['bill.created', 'lead.created'],
  ]
  const answers = await all((n) =>
    post(
      n,
      '/client/events/subscribe',
      subscribeBody(lab, { events: sets[n % 3], corporateUser: corporate.id }),
      token,
    ),
  )
  // Any two of the sets overlap, so one call wins them all.
  expect(statuses(answers)).toEqual({ 200: 1, 409: 63 })
})

test('of 20 refreshes with one token exactly one succeeds, and its new token works', async () => {
  const { clientId: clientID, clientSecret } = await buildAccount(app)
  const { refreshToken } = (await post(0, '/client/auth/token', { clientID, clientSecret })).body
  const answers = await all((n) => post(n, '/client/auth/token/refresh', { clientID, refreshToken }), 20)
  expect(statuses(answers)).toEqual({ 200: 1, 401: 19 })
  const winner = answers.find(({ status }) => status === 200)!
  const again = await post(1, '/client/auth/token/refresh', { clientID, refreshToken: winner.body.refreshToken })
  expect(again.status).toBe(200)
})

test('56 leads at once are shared fairly by 7 telecallers', async () => {
  const [{ account, token, lab }] = (await twoAccounts()) as [Awaited<ReturnType<typeof twoAccounts>>[0]]
  for (let n = 0; n < 7; n++) await buildTelecaller(app, account)
  const answers = await all(
    (n) => post(n, '/client/crm/lead/create', leadBody(lab, { contact: newContact() }), token),
    56,
  )
  expect(statuses(answers)).toEqual({ 200: 56 })
  const rows = await app.database
    .knex('entries')
    .where({ account_id: account.id })
    .groupBy('assigned_to')
    .count({ n: '*' })
  expect(rows.map(({ n }) => Number(n))).toEqual(Array(7).fill(8))
})

test('of 150 CRM calls at once exactly 60 are accepted', async () => {
  const [{ token }] = (await twoAccounts()) as [Awaited<ReturnType<typeof twoAccounts>>[0]]
  const answers = await Promise.all(
    Array.from({ length: 150 }, (_, n) =>
      fetch(`${bases[n % bases.length]}/client/labs`, { headers: { authorization: `Bearer ${token}` } }).then(
        (response) => response.status,
      ),
    ),
  )
  expect(answers.filter((status) => status === 200)).toHaveLength(60)
  expect(answers.filter((status) => status === 429)).toHaveLength(90)
})

test('of 64 pre-bookings with one barcode over two accounts exactly one is taken, and what is stored is its', async () => {
  const tenants = await twoAccounts()
  for (const { account } of tenants) {
    await app.database.transaction((trx) => updateOperatorValues(trx, account.id, 'lead_source', ['Partner']))
  }
  const answers = await all((n) => {
    const { token, lab } = tenants[n % 2]!
    // Trimmed it is one barcode.
    return post(
      n,
      '/client/billing/create',
      preBookingBody(lab, { barCode: n % 3 === 0 ? ' RACE-64' : 'RACE-64 ' }),
      token,
    )
  })
  expect(statuses(answers)).toEqual({ 200: 1, 400: 63 })
  const rows = await app.database.knex('pre_bookings').where({ barcode: 'RACE-64' }).select('id')
  expect(rows).toEqual([{ id: answers.find(({ status }) => status === 200)!.body.preBookingID }])
})

test('of 50 logins with the right code exactly one succeeds', async () => {
  const [{ account, token }] = (await twoAccounts()) as [Awaited<ReturnType<typeof twoAccounts>>[0]]
  const { contact } = await buildPatient(app, account)
  const { otpToken } = (await post(0, '/client/patient/getLoginOTP', { contact }, token)).body
  const otp = await vi.waitUntil(() => sentCode(contact), { timeout: 20_000, interval: 50 })
  const answers = await all((n) => post(n, '/client/patient/verifyLoginOTP', { otp, otpToken }, token), 50)
  expect(statuses(answers)).toEqual({ 200: 1, 401: 49 })
})

test('of 50 logins with wrong codes at once five are tried, and then the right one is too late', async () => {
  const [{ account, token }] = (await twoAccounts()) as [Awaited<ReturnType<typeof twoAccounts>>[0]]
  const { contact } = await buildPatient(app, account)
  const { otpToken } = (await post(0, '/client/patient/getLoginOTP', { contact }, token)).body
  const otp = await vi.waitUntil(() => sentCode(contact), { timeout: 20_000, interval: 50 })
  const wrong = String((Number(otp) + 1) % 1_000_000).padStart(6, '0')
  const answers = await all((n) => post(n, '/client/patient/verifyLoginOTP', { otp: wrong, otpToken }, token), 50)
  expect(statuses(answers)).toEqual({ 401: 50 })
  expect((await post(0, '/client/patient/verifyLoginOTP', { otp, otpToken }, token)).status).toBe(401)
  const [row] = await app.database.knex('otp_contacts').where({ account_id: account.id }).select('failures_in_row')
  expect(Number(row!.failures_in_row)).toBe(5)
})

test.each([
  ['a lead', '/client/crm/lead/create', (lab: Lab) => leadBody(lab), 'entries'],
  ['a pre-booking', '/client/billing/create', (lab: Lab) => preBookingBody(lab), 'pre_bookings'],
  ['a webhook', '/client/events/subscribe', (lab: Lab) => subscribeBody(lab), 'webhooks'],
])(
  'of 56 requests for %s with one Idempotency-Key one does it, and every 200 has its answer',
  async (_, path, bodyOf, table) => {
    const [{ account, token, lab }] = (await twoAccounts()) as [Awaited<ReturnType<typeof twoAccounts>>[0]]
    await app.database.transaction((trx) => updateOperatorValues(trx, account.id, 'lead_source', ['Partner']))
    const body = bodyOf(lab)
    const answers = await all((n) => post(n, path, body, token, 'one-key'), 56)
    const taken = answers.filter(({ status }) => status === 200)
    expect(taken.length).toBeGreaterThan(0)
    expect(new Set(taken.map((answer) => JSON.stringify(answer.body))).size).toBe(1)
    expect(taken.filter(({ isReplay }) => !isReplay)).toHaveLength(1)
    // Those that waited for a second in vain were told to come again.
    expect(answers.filter(({ status }) => status !== 200 && status !== 409)).toEqual([])
    const [row] = await app.database.knex(table).where({ account_id: account.id }).count({ n: '*' })
    expect(Number(row!.n)).toBe(1)
  },
)

/** What the process without an SMS gateway wrote to its file. */
function sentCode(contact: string): string | undefined {
  const file = join(folder, 'outbox', 'sms.ndjson')
  if (!existsSync(file)) return undefined
  const lines = readFileSync(file, 'utf8').trim().split('\n')
  const sms = lines.map((line) => JSON.parse(line)).findLast(({ to }) => to === contact)
  return sms && /\d{6}/.exec(sms.text)![0]
}

function preBookingBody(lab: Lab, fields: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    labID: lab.id,
    patient_details: { first_name: 'Farhan', gender: 'male', age: 51, age_type: 'year' },
    integrator_id: 'PB-1',
    lead_source: 'Partner',
    unmapped_tests: ['Serum bilirubin'],
    ...fields,
  }
}
