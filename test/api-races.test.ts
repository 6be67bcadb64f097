/**
 * Races over two real API processes on one database. Proves of the specification:
 * - "If a lead or booking with the same contact (or email) was already ingested today for the account, the call returns 409."
 * - "A party may have only one active webhook per event; a duplicate returns 409."
 * - "Request rate | 60 requests per minute per account | every CRM endpoint".
 * - "phase lead: auto-assigned to a telecaller".
 */
import { spawn, type ChildProcess } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startTestApp, type TestApp } from './support/app.ts'
import {
  buildAccount,
  buildLab,
  buildParty,
  buildTelecaller,
  leadBody,
  newContact,
  subscribeBody,
  type TestAccount,
} from './support/builders.ts'

const CALLS = 64
const folder = mkdtempSync(join(tmpdir(), 'lis-races-'))
const secretsKey = randomBytes(32).toString('base64')
const children: ChildProcess[] = []
let app: TestApp
let bases: string[]

beforeAll(async () => {
  // Only for its database and for what the builders write; every call goes to the processes.
  app = await startTestApp()
  bases = await Promise.all([startApiProcess(), startApiProcess()])
})
afterAll(async () => {
  for (const child of children) child.kill('SIGKILL')
  await Promise.all(
    children.map((child) => child.exitCode ?? child.signalCode ?? new Promise((end) => child.once('exit', end))),
  )
  await app.close()
  rmSync(folder, { recursive: true, force: true })
})

async function startApiProcess(): Promise<string> {
  const child = spawn(process.execPath, ['src/server.ts'], {
    env: {
      ...process.env,
      NODE_ENV: 'test',
      MYSQL_URL: app.mysqlUrl,
      SECRETS_KEY: secretsKey,
      DATA_DIR: folder,
      PORT: '0',
      LOG_LEVEL: 'error',
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  children.push(child)
  return new Promise((resolve, reject) => {
    child.stdout!.on('data', (data: Buffer) => {
      const port = /listening (\d+)/.exec(String(data))?.[1]
      if (port) resolve(`http://127.0.0.1:${port}`)
    })
    child.once('exit', (code) => reject(new Error(`the API ended with ${code}`)))
  })
}

interface Answer {
  status: number
  body: Record<string, any>
}

/** The n-th call goes to the n-th process in turn. */
async function post(n: number, path: string, body: object, token?: string): Promise<Answer> {
  const response = await fetch(bases[n % bases.length] + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...(token ? { authorization: `Bearer ${token}` } : {}) },
    body: JSON.stringify(body),
  })
  return { status: response.status, body: (await response.json()) as Answer['body'] }
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
    const { token, lab } = tenants[(n >> 1) % 2]!
    return post(n, '/client/crm/lead/create', leadBody(lab, { contact }), token)
  })
  expect(statuses(answers)).toEqual({ 200: 2, 409: 62 })
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
      fetch(`${bases[n % 2]}/client/labs`, { headers: { authorization: `Bearer ${token}` } }).then(
        (response) => response.status,
      ),
    ),
  )
  expect(answers.filter((status) => status === 200)).toHaveLength(60)
  expect(answers.filter((status) => status === 429)).toHaveLength(90)
})
