/**
 * Everybody's usual work for a few seconds, beside endpoints that hang, fail, reset and are slow, then a burst: what `make
 * bench-soak` does for minutes and hours. And that its verdict turns red, whatever is off.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { CrashArena } from '../scripts/crash/crash-arena.ts'
import { startHookedReceiver, type HookedReceiver } from '../scripts/crash/hooked-receiver.ts'
import { Ledger } from '../scripts/crash/ledger.ts'
import { seededRandom } from '../scripts/crash/seeded-random.ts'
import { runSoak, type SoakPlan, type SoakResult, type SoakStage } from '../scripts/soak/soak-run.ts'
import { judgeSoak } from '../scripts/soak/soak-verdict.ts'
import { openTestDatabase, type TestDatabase } from './support/database.ts'
import { createTestTls } from './support/tls.ts'

const PLAN: SoakPlan = {
  seconds: 4,
  rate: 40,
  events: 40,
  accounts: 40,
  burst: 200,
  killEveryMs: undefined,
  random: seededRandom(1),
  env: {},
  warmUpSeconds: 1,
  // Too short for connections to be closed that nobody uses any more: one to each endpoint, and those of the pools.
  files: { idleMs: 0, more: 300, timeoutMs: 0 },
  forgets: false,
}
/** Nothing but the soak runs on the machine; or so much that no time means anything. */
const QUIET = { api: 0.5, daemon: 0.5, database: 0.5, bench: 0.1, machine: 1.6, all: 2, seconds: 4 }
const BUSY = { ...QUIET, machine: 4 }

const folder = mkdtempSync(join(tmpdir(), 'lis-soak-'))
let tls: Awaited<ReturnType<typeof createTestTls>>
let db: TestDatabase
let arena: CrashArena
let receiver: HookedReceiver
let ledger: Ledger
let stage: SoakStage
let result: SoakResult

beforeAll(async () => {
  tls = await createTestTls()
  db = await openTestDatabase()
  ledger = new Ledger(join(folder, 'ledger'))
  receiver = await startHookedReceiver(tls, ledger)
  arena = await CrashArena.open(db.mysqlUrl, folder, tls)
  stage = { arena, receiver, ledger, tls, server: undefined, folder }
  result = await runSoak(stage, PLAN, () => {})
}, 120_000)
afterAll(async () => {
  await arena.close()
  receiver.close()
  ledger.close()
  await db.close()
  tls.remove()
  rmSync(folder, { recursive: true, force: true })
})

const verdictOf = (changes: Partial<SoakResult>) => judgeSoak({ ...result, cores: BUSY, ...changes }, PLAN)

test('nothing is lost, made up or sent twice, every answer is as planned, and the doctor finds nothing', () => {
  const { lines, faults } = verdictOf({})
  expect(faults, lines.join('\n')).toEqual([])
  expect(lines).toContain('lost=0 phantom=0 duplicates explained=0 unexplained=0')
  // Of everything that was planned something has happened.
  expect([...result.calls.statuses.keys()]).toEqual(expect.arrayContaining([200, 201, 304, 401, 404]))
  expect(result.burst.taken + result.burst.refused).toBe(PLAN.burst)
})

const without = <Item>(items: Item[], isGone: (item: Item) => boolean) => items.filter((item) => !isGone(item))
const late = (ms: number) => Array.from({ length: 100 }, () => ms)

test.each<[string, (one: SoakResult) => Partial<SoakResult>, string]>([
  ['a receipt that is missing', ({ evidence }) => ({ evidence: { ...evidence, receipts: without(evidence.receipts, ({ event }) => event === evidence.clients.find((line) => line.request === 'lab-1')!.leadId) } }), 'what was delivered'],
  ['an event that nobody recorded', ({ evidence }) => ({ evidence: { ...evidence, events: without(evidence.events, ({ lead }) => lead === evidence.clients[0]!.leadId) } }), 'what was delivered'],
  ['slow calls', ({ usual }) => ({ cores: QUIET, lateness: [1], usual: { ...usual, list: late(500) } }), 'p99 of calls'],
  ['slow leads', ({ usual }) => ({ cores: QUIET, lateness: [1], usual: { ...usual, lead: late(500) } }), 'p99 of leads'],
  ['late receipts', ({ recordedAtMs }) => ({ cores: QUIET, fromMs: 0, recordedAtMs: new Map([...recordedAtMs].map(([event, atMs]) => [event, atMs - 3000])) }), 'p99 of commit to receiver'],
  ['a burst that takes long', ({ burst }) => ({ burst: { ...burst, fromMs: burst.fromMs - 60_000 } }), 'the burst'],
  ['a large daemon', ({ memory }) => ({ memory: [...memory, { kind: 'daemon', pid: 1, mostMb: 401, earlyMb: undefined, lateMb: undefined }] }), 'memory of daemon'],
  ['an API that grows', ({ memory }) => ({ memory: [...memory, { kind: 'api', pid: 1, mostMb: 200, earlyMb: 150, lateMb: 190 }] }), 'growth of api'],
  ['open files', () => ({ moreFiles: PLAN.files.more + 1 }), 'open files'],
  ['connections beyond the pools', () => ({ connections: 101 }), 'connections'],
  ['a process that did not end well', () => ({ badEnds: ['the API (1): code 1'] }), 'how processes ended'],
  ['a copy that came twice', ({ evidence }) => ({ evidence: { ...evidence, receipts: [...evidence.receipts, evidence.receipts.find(({ webhook }) => evidence.webhooks.some((one) => one.webhook === webhook))!] } }), 'what was delivered'],
  ['a finding of the doctor', () => ({ doctor: { lines: ['doctor: findings=1'], code: 1 } }), 'what the doctor finds'],
  ['a line of level error', () => ({ errors: ['{"level":50}'] }), 'lines of level error'],
])('%s: the verdict says so', (_, changes, fault) => {
  expect(verdictOf(changes(result)).faults).toContain(fault)
}) // prettier-ignore

test('an answer that was not planned: the verdict says so', () => {
  const call = { what: 'list', status: 500, details: '', pid: 1, sentAtMs: 1, endedAtMs: 2 }
  result.calls.unplanned.push(call)
  expect(verdictOf({}).faults).toContain('unplanned answers')
  // Also where processes were killed: a kill explains no 500.
  expect(judgeSoak(result, { ...PLAN, killEveryMs: 1000 }).faults).toContain('unplanned answers')
  result.calls.unplanned.pop()
})

test('a receipt that the receiver forgets is lost', async () => {
  const again = await runSoak(stage, { ...PLAN, seconds: 1, warmUpSeconds: 0, burst: 0, forgets: true }, () => {})
  expect(judgeSoak({ ...again, cores: BUSY }, PLAN).lines).toContain(
    'lost=1 phantom=0 duplicates explained=0 unexplained=0',
  )
}, 60_000)
