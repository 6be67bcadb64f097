/**
 * Every text that a request of either contract can carry, with texts that do something where a value is taken for code: each is
 * answered as the contract says, never with a fault of ours, and changes nothing that it does not name.
 *
 * INJECTION_RUNS sets how many texts each place gets; 400 are all of them.
 */
import type { Knex } from 'knex'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { client, operator, startTestApp, type TestApp } from '../support/app.ts'
import { bookingBody, buildPatient, leadBody } from '../support/builders.ts'
import { buildTenant, FuzzWorld, subscribe, type Tenant } from './fuzz-world.ts'
import { INJECTION_TEXTS } from './injection-texts.ts'
import { OperationRunner } from './operation-runs.ts'

const RUNS = Number(process.env.INJECTION_RUNS ?? 1)
const TIMEOUT_MS = 60_000 + RUNS * 2000

let app: TestApp
let world: FuzzWorld
let bystander: Tenant
let before: Record<string, unknown>
/** The next text to be used: so each comes up somewhere. */
let next = 0
let sent = 0

beforeAll(async () => {
  app = await startTestApp()
  world = await FuzzWorld.create(app)
  bystander = await buildBystander()
  before = await rowsOfBystander(app.database.knex)
})
afterAll(async () => {
  console.log(
    `injections: ${sent} requests, ${Math.min(next, INJECTION_TEXTS.length)} of ${INJECTION_TEXTS.length} texts`,
  )
  await app.close()
})

/** Somebody whom no request names. */
async function buildBystander(): Promise<Tenant> {
  const tenant = await buildTenant(app, 'catch_all')
  const [lab] = tenant.labs
  const { token } = tenant.account
  await subscribe(app, tenant)
  await buildPatient(app, tenant.account)
  for (const body of [leadBody(lab!), bookingBody(lab!)]) {
    expect((await app.call('POST', '/client/crm/lead/create', { token, body })).status).toBe(200)
  }
  return tenant
}

async function rowsOfBystander(knex: Knex): Promise<Record<string, unknown>> {
  const [columns] = await knex.raw(
    `SELECT c.TABLE_NAME AS name FROM information_schema.columns c WHERE c.TABLE_SCHEMA = DATABASE() AND c.COLUMN_NAME = 'account_id'`,
  )
  const names: string[] = columns.map((row: { name: string }) => row.name)
  const account = knex('accounts').where({ id: bystander.account.id })
  const rows = await Promise.all(names.sort().map((name) => knex(name).where({ account_id: bystander.account.id })))
  return {
    accounts: JSON.stringify(await account),
    ...Object.fromEntries(
      names.map((name, index) => [name, rows[index]!.map((row: object) => JSON.stringify(row)).sort()]),
    ),
  }
}

/** Besides, each place gets one beyond ASCII: a server refuses to compare such with a column of ids. */
function texts(): string[] {
  return ['\u2019', ...Array.from({ length: RUNS }, () => INJECTION_TEXTS[next++ % INJECTION_TEXTS.length]!)]
}

describe.each([
  ['client', client],
  ['operator', operator],
] as const)('in the %s contract', (_, contract) => {
  const operations = contract.operations.map((operation) => ({ ...operation, name: operation.operationId }))

  test.each(operations)('$name takes every text for a text', async (operation) => {
    const outcome = await new OperationRunner(world, contract).runInjected(operation, texts, next)
    sent += outcome.sent
    expect(outcome.failures.map((failure) => failure.slice(0, 1000)).slice(0, 8)).toEqual([])
  }, TIMEOUT_MS) // prettier-ignore
})

test('no request met a fault of ours', () => {
  expect(app.logs().filter(({ status }) => Number(status) >= 500)).toEqual([])
})

test('everything of a bystander is as it was', async () => {
  expect(Object.keys(before).length).toBeGreaterThan(10)
  expect(await rowsOfBystander(app.database.knex)).toEqual(before)
})
