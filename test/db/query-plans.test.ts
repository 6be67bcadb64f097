/**
 * Every statement that the service sends is explained by the server, over tables with thousands of rows each: none may read one
 * from end to end. The statements are those that really go over the connections while every operation of both contracts is called,
 * while a daemon routes, delivers, retries, warns and deletes, and while what has expired is removed.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { checkWebhookHealth } from '../../daemon/jobs/check-webhook-health.ts'
import { followClock } from '../../daemon/jobs/follow-clock.ts'
import { purgeExpired } from '../../daemon/jobs/purge-expired.ts'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { DaemonHints } from '../../src/events/daemon-hints.ts'
import { createLogger } from '../../src/logger.ts'
import { FuzzWorld } from '../fuzz/fuzz-world.ts'
import { OperationRunner } from '../fuzz/operation-runs.ts'
import { client, operator, startTestApp, type TestApp } from '../support/app.ts'
import { buildOperatorKey } from '../support/builders.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { buildTenants, entryCalls } from '../support/entry-calls.ts'
import { enlargeTables } from '../support/large-tables.ts'
import { buildOperatorWorld, DELIVERY_CALLS, KEEPING_CALLS } from '../support/operator-calls.ts'
import { STAFF_CALLS } from '../support/staff-calls.ts'
import { StatementRecorder } from '../support/statement-recorder.ts'
import { createTestTls } from '../support/tls.ts'

/** Fewer are nothing to read. */
const LARGE = 1000
const RUNS = 2
const SEED = 7

/** A row each for a process, an operator's system, the purge, the schema, or a rare thing: they never grow large. */
const SMALL_TABLES = new Set([
  'daemons',
  'purge_runs',
  'webhook_inactivity',
  'migration_guard',
  'schema_migrations',
  'schema_migrations_lock',
  'operator_keys',
])

/** Any row or none, in whatever order: the server stops at the first, but estimates as if it did not. */
const ANY_ROW = /^\(?SELECT [^()]* FROM `?\w+`? LIMIT 1\b/i

let app: TestApp
let world: DeliveryWorld
let receiver: HttpsReceiver
let tls: Awaited<ReturnType<typeof createTestTls>>
const recorder = new StatementRecorder()

beforeAll(async () => {
  tls = await createTestTls()
  let recovers = false
  receiver = await startHttpsReceiver(tls, ({ path }) => {
    if (path !== '/recovers') return { status: path === '/broken' ? 500 : 204 }
    const status = recovers ? 204 : 500
    recovers = true
    return { status }
  })
  app = await startTestApp()
  world = await new DeliveryWorld(app.database).open()
})
afterAll(async () => {
  recorder.stop()
  await world.close()
  await app.close()
  await receiver.close()
  tls.remove()
})

async function callEverything(): Promise<void> {
  const fuzzWorld = await FuzzWorld.create(app)
  for (const contract of [client, operator]) {
    const runner = new OperationRunner(fuzzWorld, contract)
    for (const operation of contract.operations) await runner.runValid(operation, RUNS, SEED)
  }
}

/** By their ids in a path most of those calls find nothing: each changing one of the operator's is made on what there is as well. */
async function changeEverything(): Promise<void> {
  const token = await buildOperatorKey(app)
  const operatorWorld = await buildOperatorWorld(app, token)
  const calls = { ...KEEPING_CALLS, ...STAFF_CALLS, ...DELIVERY_CALLS }
  for (const { operationId, method } of operator.operations) {
    if (method === 'GET') continue
    const { path, ...call } = await calls[operationId]!(operatorWorld)
    const answer = await app.call(method, path, { token, ...call })
    expect([200, 201], `${operationId}: ${JSON.stringify(answer.body)}`).toContain(answer.status)
  }
}

/** Leads of several accounts in one transaction, looked up and foreseen: their statements are other ones than those of one alone. */
async function createTogether(): Promise<void> {
  const { create, callOf } = entryCalls(app)
  const tenants = await buildTenants(app, 3)
  for (let n = 0; n < 3; n++) await Promise.all(tenants.map((tenant) => create(callOf(tenant))))
  expect(recorder.statements.some((sql) => sql.includes('INTO events') && sql.includes('UNION ALL'))).toBe(true)
  expect(recorder.statements.some((sql) => sql.includes('NOWAIT'))).toBe(true)
}

async function deliverEverything(): Promise<void> {
  const { clock } = world
  const { knex } = app.database
  for (const path of ['/ok', '/broken', '/recovers', '/broken/for-a-day']) {
    const { id } = await world.webhook({ endpoint: `${receiver.url}${path}` })
    if (path.endsWith('day')) await knex('webhooks').where({ id }).update({ first_failure_at: new Date(clock.nowMs() - 25 * 3_600_000) }) // prettier-ignore
  }
  const daemon = await world.daemon(tls.caFile, { RETRY_SCHEDULE: '1' })
  for (let n = 0; n < 3; n++) await world.event()
  await world.message()
  const hints = new DaemonHints(knex)
  hints.send('events', { eventId: (await world.event()).id })
  await expect.poll(() => recorder.statements.some((sql) => sql.includes('@event'))).toBe(true)
  hints.close()
  // As if the server's clock was set back at this moment.
  await knex.raw('UPDATE purge_runs SET due_at = UTC_TIMESTAMP(3) + INTERVAL 1 HOUR')
  const follow = followClock({ database: app.database, clock, log: createLogger('daemon', 'silent') })
  await follow().then(follow)
  const waiting = async () => Boolean((await knex('unrouted_events').first()) ?? (await knex('delivery_queue').first()))
  await expect.poll(waiting, { timeout: 20_000 }).toBe(false)
  await expect.poll(() => recorder.statements.some((sql) => sql.includes('ORDER BY first.event_id'))).toBe(true)
  await daemon.stop()
  const log = createLogger('daemon', 'silent')
  const limits = { warnAfterSeconds: 0, warnByClockSeconds: 0, deleteAfterSeconds: 0, minWarningLeadSeconds: 0 }
  await checkWebhookHealth({ database: app.database, clock, log, limits, onWarned: () => {} })()
  const settings = { payloadRetentionDays: -1, logRetentionDays: -1 }
  await purgeExpired({ database: app.database, clock, log, settings, stopping: () => false })()
}

/** Its session has none, and NULL is compared with nothing. */
function withoutVariables(sql: string): string {
  return sql.replace(' INTO @event', '').replaceAll(/@(event|taken)/g, "'01m821y0000000000000000000'")
}

/** The large tables that it would read from end to end. */
async function scansOf(sql: string): Promise<string[]> {
  // MySQL 9 answers with a tree, a single column, unless it is told the format.
  const [plan] = await app.database.knex.raw(`EXPLAIN FORMAT=TRADITIONAL ${sql.replaceAll('?', '\\?')}`)
  const scans: string[] = []
  for (const row of plan) {
    if (!('type' in row && 'rows' in row)) throw new Error(`no plan: ${JSON.stringify(row)}`)
    const { table, type, rows } = row
    if (table && sql.includes(`FROM ${table} LIMIT 1)`)) continue
    if ((type === 'ALL' || type === 'index') && Number(rows) > LARGE && !table?.startsWith('<')) {
      scans.push(`${table}: ${type} of ${rows} rows: ${sql.replace(/\s+/g, ' ').slice(0, 600)}`)
    }
  }
  return scans
}

test('no statement reads a large table from end to end', async () => {
  // In this order: what the purge removes is of deliveries alone, and the other statements find their rows.
  await deliverEverything()
  await createTogether()
  await callEverything()
  await changeEverything()
  recorder.stop()
  const { knex } = app.database
  const tables = await enlargeTables(knex, SMALL_TABLES)
  const short: string[] = []
  for (const table of tables) {
    const [{ n }] = (await knex(table).count({ n: '*' })) as [{ n: number }]
    if (Number(n) < 3 * LARGE) short.push(`${table}: ${n} rows`)
  }
  expect(short).toEqual([])
  expect(recorder.statements.length).toBeGreaterThan(150)
  // The check itself: no key has the e-mail.
  expect(await scansOf(`SELECT id FROM entries WHERE email = 'nobody@example.com'`)).toHaveLength(1)
  const scans: string[] = []
  for (const sql of recorder.statements) {
    if (ANY_ROW.test(sql) && !/ UNION /i.test(sql)) continue
    scans.push(...(await scansOf(withoutVariables(sql))))
  }
  expect(scans).toEqual([])
}, 120_000)
