/**
 * `make bench-clocks`: clocks that jump under load, each process's own, the database's, and all together (libfaketime).
 *
 *     node scripts/crash/bench-clocks.ts [--seconds 60] [--jumps-a-minute 10] [--rate 20] [--seed 1]
 *
 * Every call is answered 200, nothing is lost, nothing comes twice, and no event is late. A jump of a process's own clock
 * changes no webhook and no due time; one of the database's touches no webhook that is not failing, and deletes nobody without
 * a failed attempt after it. At last the database's clock is set back once more, and the retry that waits is not later for it.
 * Takes --seconds and a minute. Exit 1 when that is not so.
 */
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { monotonicMs } from '../../src/clock.ts'
import { until, type CrashArena } from './crash-arena.ts'
import { CrashLoad, writeEvents } from './crash-load.ts'
import { CrashServer } from './crash-server.ts'
import { delaysIn, pause, runBench, shareOf, withCrashStage, type CrashStage } from './crash-stage.ts'
import { FakeTime, findFakeTime } from './fake-time.ts'
import { complaints, isSound, judge, readEvidence, summary } from './ledger-check.ts'
import { seededRandom } from './seeded-random.ts'

const WORST_P99_MS = 2000
const WORST_MS = 10_000
/** A process looks at its clocks each second. */
const SEEN_WITHIN_MS = 4000
const JUMP_SECONDS = { '+25 h': 90_000, '-3 h': -10_800, '+11 min': 660 }
const PROCESS_CLOCKS = ['API 1', 'API 2', 'daemon 1', 'daemon 2'] as const
const CLOCKS = [...PROCESS_CLOCKS, 'database', 'all'] as const
const SET_BACK_SECONDS = JUMP_SECONDS['-3 h']
/** By so much a retry that waits may be later after the database's clock was set back. */
const WORST_LATER_MS = 300_000
/** What waits is moved at the second look after the jump, five seconds apart; the machine may be busy. */
const MOVED_WITHIN_MS = 30_000
/** The first failure is tried again so much later: no attempt of the watched webhook falls into the run. */
const RETRY_SECONDS = 100 * 86_400

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '60' },
    'jumps-a-minute': { type: 'string', default: '10' },
    rate: { type: 'string', default: '20' },
    seed: { type: 'string', default: '1' },
  },
})
const say = (line: string) => process.stderr.write(`bench-clocks: ${line}\n`)

type Clocks = Record<(typeof CLOCKS)[number], FakeTime>

/** What a webhook's state and the due time of its waiting copy are: a jump must leave them as they are. */
async function standOf({ database: { knex } }: CrashArena, webhook: string): Promise<string> {
  const row = await knex('webhooks')
    .where({ id: webhook })
    .first('state', 'first_failure_at', 'failed_attempts', 'warned_at')
  const waiting = await knex('delivery_queue').where({ webhook_id: webhook }).select('due_at', 'attempts')
  return JSON.stringify([row, waiting])
}

/** A webhook that fails, and has a copy that waits for its second attempt. */
async function failingWebhook({ arena, receiver }: CrashStage): Promise<string> {
  const tenant = await arena.addTenant()
  const webhook = await arena.addWebhook(tenant, receiver.urlOf)
  receiver.behaviours.set(webhook, () => 500)
  await arena.addEvent(tenant)
  const retries = () => arena.database.knex('delivery_queue').where({ webhook_id: webhook, attempts: 1 }).first()
  await until('the failed attempt is recorded', async () => (await retries()) !== undefined)
  return webhook
}

interface JumpFaults {
  jumps: number
  /** Of a process's own clock, behind which the failing webhook stood otherwise. */
  changed: number
  /** Of the database's: the failing webhook was deleted by the clock alone. */
  deleted: number
}

async function jumpAbout(stage: CrashStage, clocks: Clocks, failing: string): Promise<JumpFaults> {
  const { arena } = stage
  const random = seededRandom(Number(values.seed))
  const pick = <T>(list: readonly T[]) => list[Math.floor(random() * list.length)]!
  const faults: JumpFaults = { jumps: 0, changed: 0, deleted: 0 }
  let databaseHasJumped = false
  const gapMs = 60_000 / Number(values['jumps-a-minute'])
  const endMs = monotonicMs() + Number(values.seconds) * 1000
  while (monotonicMs() < endMs) {
    const atMs = monotonicMs()
    // First those that must change nothing at all.
    const whose = monotonicMs() < endMs - (Number(values.seconds) * 1000) / 2 ? pick(PROCESS_CLOCKS) : pick(CLOCKS)
    const [name, seconds] = pick(Object.entries(JUMP_SECONDS))
    const before = await standOf(arena, failing)
    for (const clock of whose === 'all' ? Object.values(clocks) : [clocks[whose]]) {
      clock.set(clock.offsetSeconds + seconds)
    }
    faults.jumps++
    await pause(Math.min(gapMs, SEEN_WITHIN_MS))
    const after = await standOf(arena, failing)
    say(`${whose} ${name}${before === after ? '' : ': the failing webhook was warned of'}`)
    const isProcess = PROCESS_CLOCKS.some((name) => name === whose)
    // The check of a minute may find only now what the database's clock has made of it.
    databaseHasJumped ||= !isProcess
    if (!databaseHasJumped && before !== after) faults.changed++
    if (!after.includes('"active"')) faults.deleted++
    await pause(Math.max(0, gapMs - (monotonicMs() - atMs)))
  }
  return faults
}

/** How long the failing webhook's copy still waits, by the database's clock. */
async function waitsFor({ database: { knex } }: CrashArena, webhook: string): Promise<number> {
  const row = await knex('delivery_queue')
    .where({ webhook_id: webhook })
    .first(knex.raw('TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(3), due_at) / 1000 AS ms'))
  return Number(row.ms)
}

/** @returns by how much later the waiting copy is, in milliseconds, when what waits was moved or was to be */
async function setBackOnce({ arena }: CrashStage, clocks: Clocks, failing: string): Promise<number> {
  const atMs = monotonicMs()
  const beforeMs = await waitsFor(arena, failing)
  clocks.database.set(clocks.database.offsetSeconds + SET_BACK_SECONDS)
  const laterMs = async () => (await waitsFor(arena, failing)) - (beforeMs - (monotonicMs() - atMs))
  await until('what waits is moved', async () => (await laterMs()) <= WORST_LATER_MS, MOVED_WITHIN_MS).catch(() => {})
  say(`database -3 h: moved after ${Math.round((monotonicMs() - atMs) / 1000)} s`)
  return laterMs()
}

/** Jumps that the processes have logged, by whose clock. */
function loggedJumps(folder: string): Record<string, number> {
  const counts: Record<string, number> = { process: 0, database: 0 }
  for (const file of readdirSync(folder)) {
    for (const line of readFileSync(join(folder, file), 'utf8').split('\n')) {
      if (line.includes('"clock_jump"')) counts[JSON.parse(line).from]! += 1
    }
  }
  return counts
}

async function run(stage: CrashStage, clocks: Clocks): Promise<boolean> {
  const { arena, receiver, ledger } = stage
  const apis = [await arena.startApi(clocks['API 1'].env), await arena.startApi(clocks['API 2'].env)]
  const settings = { RETRY_SCHEDULE: String(RETRY_SECONDS) }
  for (const name of ['daemon 1', 'daemon 2'] as const) await arena.startDaemon({ ...settings, ...clocks[name].env })
  const failing = await failingWebhook(stage)
  let turn = 0
  const target = () => {
    const { url, service } = apis[turn++ % apis.length]!
    return { url, pid: service.pid }
  }
  const rate = Number(values.rate)
  const load = await CrashLoad.prepare({ arena, receiver, ledger, rate, target })
  load.start()
  const jumpAll = async () => {
    const faults = await jumpAbout(stage, clocks, failing)
    return { ...faults, laterMs: await setBackOnce(stage, clocks, failing) }
  }
  const faults = await jumpAll().finally(() => load.stop())
  const others = async () =>
    (await arena.database.knex('delivery_queue').whereNot({ webhook_id: failing }).first('event_id')) === undefined &&
    (await arena.database.knex('unrouted_events').first('event_id')) === undefined
  const isEmpty = await until('everything is delivered', others, 30_000).then(
    () => true,
    () => false,
  )
  await writeEvents(arena, ledger)
  return report(stage, failing, faults, isEmpty)
}

type Found = JumpFaults & { laterMs: number }

async function report(stage: CrashStage, failing: string, faults: Found, isEmpty: boolean): Promise<boolean> {
  const { arena, ledger, scratch } = stage
  const evidence = readEvidence(ledger.folder)
  const byStatus = Object.entries(Object.groupBy(evidence.clients, ({ status }) => String(status)))
  const calls = byStatus.map(([status, list]) => `${status}=${list!.length}`).join(' ')
  const delays = delaysIn(evidence, -Infinity, Infinity)
  const [p99, worst] = [shareOf(delays, 0.99), shareOf(delays, 1)]
  const knex = arena.database.knex('webhooks')
  const touched = await knex.whereNot({ id: failing }).where((q) => void q.whereNot({ state: 'active' }).orWhereNotNull('first_failure_at')).pluck('id') // prettier-ignore
  const logged = loggedJumps(join(scratch, 'logs'))
  const verdict = judge(evidence)
  console.log(`jumps=${faults.jumps} logged: of a process=${logged.process} of the database=${logged.database}`)
  console.log(`failing webhook changed by a process's clock=${faults.changed} deleted by a clock=${faults.deleted} healthy webhooks touched=${touched.length}`) // prettier-ignore
  console.log(`a waiting retry is later by ${Math.round(faults.laterMs / 1000)} s after the database's clock was set back by ${-SET_BACK_SECONDS} s`) // prettier-ignore
  console.log(`calls ${calls} receipts=${delays.length} p50=${Math.round(shareOf(delays, 0.5))} ms p99=${Math.round(p99)} ms slowest=${Math.round(worst)} ms`) // prettier-ignore
  console.log(`${summary(verdict)}${isEmpty ? '' : ', and copies still wait'}`)
  for (const line of complaints(verdict)) console.log(line)
  const isQuick = p99 <= WORST_P99_MS && worst <= WORST_MS
  const areAnswered = byStatus.every(([status]) => status === '200')
  const areUntouched = faults.changed + faults.deleted + touched.length === 0
  const isInTime = faults.laterMs <= WORST_LATER_MS
  return isEmpty && isQuick && areAnswered && areUntouched && isInTime && isSound(verdict) && verdict.explained === 0
}

runBench('bench-clocks', async () => {
  const library = findFakeTime()
  if (!library) {
    console.log('clocks               SKIPPED: libfaketime is not installed (apt-get install libfaketime)')
    return true
  }
  const clocks = Object.fromEntries(CLOCKS.filter((name) => name !== 'all').map((name) => [name, new FakeTime(library)])) as Clocks // prettier-ignore
  try {
    const startServer = () => clocks.database.around(() => CrashServer.start())
    return await withCrashStage(say, (stage) => run(stage, clocks), startServer)
  } finally {
    for (const clock of Object.values(clocks)) clock.remove()
  }
})
