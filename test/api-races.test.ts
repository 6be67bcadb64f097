/**
 * Races over three real API processes on one database. Proves of the specification:
 * - "If a lead or booking with the same contact (or email) was already ingested today for the account, the call returns 409."
 * - "A party may have only one active webhook per event; a duplicate returns 409."
 * - "Request rate | 60 requests per minute per account | every CRM endpoint".
 * - "phase lead: auto-assigned to a telecaller".
 * - "Barcode | unique across the system".
 * And of the decisions: one login for a code, one change for an `Idempotency-Key`, amounts that come out as they went in.
 *
 * `make bench-races` runs the same races for hundreds of rounds.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { CrashArena } from '../scripts/crash/crash-arena.ts'
import { seededRandom } from '../scripts/crash/seeded-random.ts'
import { burst } from '../scripts/races/budget-race.ts'
import { sentCode } from '../scripts/races/login-races.ts'
import { RaceWorld } from '../scripts/races/race-world.ts'
import { RACES } from '../scripts/races/races.ts'
import { Tally } from '../scripts/races/tally.ts'
import { updateOperatorValues } from '../src/billing/operator-lists-repository.ts'
import type { Lab } from '../src/catalogue/labs-repository.ts'
import { startTestApp, type TestApp } from './support/app.ts'
import { buildAccount, buildLab, buildPatient, leadBody, subscribeBody, type TestAccount } from './support/builders.ts'
import { createTestTls } from './support/tls.ts'

/** M3 sets the clock of a server of its own, and M7 lasts minutes: their quick forms are tests of `test/crm`, and the one below. */
const ROUNDS: Record<string, number> = { M1: 1, M2: 1, M4: 2, M5: 1, M6: 4, M8: 1, M9: 2 }

const folder = mkdtempSync(join(tmpdir(), 'lis-races-'))
let app: TestApp
let tls: Awaited<ReturnType<typeof createTestTls>>
let arena: CrashArena
let world: RaceWorld

beforeAll(async () => {
  // Only for its database and for what the builders write; every call goes to the processes.
  app = await startTestApp()
  tls = await createTestTls()
  arena = await CrashArena.open(app.mysqlUrl, folder, tls)
  world = await RaceWorld.open(arena, folder)
})
afterAll(async () => {
  world.close()
  await arena.close()
  await app.close()
  tls.remove()
  rmSync(folder, { recursive: true, force: true })
})

interface Answer {
  status: number
  isReplay: boolean
  body: Record<string, any>
}

/** The n-th call goes to the n-th process in turn. */
async function post(n: number, path: string, body: object, token?: string, key?: string): Promise<Answer> {
  const response = await fetch(world.url(n) + path, {
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

const all = (call: (n: number) => Promise<Answer>, calls: number) =>
  Promise.all(Array.from({ length: calls }, (_, n) => call(n)))

function statuses(answers: Answer[]): Record<number, number> {
  const counts: Record<number, number> = {}
  for (const { status } of answers) counts[status] = (counts[status] ?? 0) + 1
  return counts
}

async function buildTenant() {
  const account = await buildAccount(app)
  return { account, token: await tokenOf(account), lab: await buildLab(app, account) }
}

test.each(RACES.filter(({ id }) => id in ROUNDS))(
  '$title',
  async ({ id, run }) => {
    const tally = await run(world, { rounds: ROUNDS[id]!, minutes: 0, random: seededRandom(1), say: () => {} })
    expect(tally.faults).toEqual([])
  },
  60_000,
)

test('of 300 CRM calls at once exactly 60 are accepted, and another account has all of its own', async () => {
  const [tenant, neighbour] = await world.addTenants(2)
  const tally = new Tally()
  await burst({ world, tally, setBackAtMs: Infinity }, tenant!, neighbour!)
  expect(tally.faults).toEqual([])
})

test('of 50 logins with wrong codes at once five are tried, and then the right one is too late', async () => {
  const { account, token } = await buildTenant()
  const { contact } = await buildPatient(app, account)
  const { otpToken } = (await post(0, '/client/patient/getLoginOTP', { contact }, token)).body
  const otp = await sentCode(world, contact)
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
    const { account, token, lab } = await buildTenant()
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
