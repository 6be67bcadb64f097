/**
 * A soak: integrators, patients and the lab at their usual work for a while, some endpoints faulty, then a burst, and at last
 * everything made well and waited for. What it leaves is judged in `soak-verdict.ts`.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createReadStream, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { monotonicMs } from '../../src/clock.ts'
import { until, type CrashArena } from '../crash/crash-arena.ts'
import type { CrashServer } from '../crash/crash-server.ts'
import { pause } from '../crash/crash-stage.ts'
import type { HookedReceiver } from '../crash/hooked-receiver.ts'
import { readLedger, type Ledger } from '../crash/ledger.ts'
import type { Evidence, Receipt } from '../crash/ledger-check.ts'
import { killDatabase, ProcessSlots, type ProcessKind } from '../crash/process-slots.ts'
import { untilDry } from '../crash/random-kills.ts'
import type { DevTls } from '../dev-tls.ts'
import { addHostile, makeFaulty, type Hostile } from './faulty-endpoints.ts'
import { mixedCalls, onSchedule } from './fixed-schedule.ts'
import { LabEvents } from './lab-events.ts'
import { openFiles, ProcessWatch, untilFilesClosed, type Cores, type Memory } from './process-watch.ts'
import { isLive, prepareWorld, type SoakWorld } from './soak-accounts.ts'
import { SoakCalls } from './soak-calls.ts'
import { deletion } from './webhook-care.ts'
import { startSmsSink, type SmsSink } from './sms-sink.ts'

export interface SoakPlan {
  seconds: number
  /** Calls a second by integrators and patients. */
  rate: number
  /** Events a second from the lab's side. */
  events: number
  accounts: number
  /** Leads that come within a thousandth of so many seconds. */
  burst: number
  /** A process is killed each so many ms, the database once; undefined: nothing is. */
  killEveryMs: number | undefined
  random: () => number
  /** Of both kinds of process: the life cycle of webhooks. */
  env: Record<string, string>
  /** Before the clock starts: connections are open, and code is compiled. */
  warmUpSeconds: number
  /** How many more files may be open at the end than `idleMs` after the warm-up, and how long it may take until that is so. */
  files: { idleMs: number; more: number; timeoutMs: number }
  /** A control: one receipt is not written down. */
  forgets: boolean
}

export interface SoakStage {
  arena: CrashArena
  receiver: HookedReceiver
  ledger: Ledger
  tls: DevTls
  /** What there is to kill. */
  server: CrashServer | undefined
  /** Of its own. */
  folder: string
}

export interface SoakResult {
  evidence: Evidence
  calls: SoakCalls
  /** When the usual work began. */
  fromMs: number
  /** Of the usual work, without the burst: from when each call should have left to its answer, in ms. */
  usual: SoakCalls['delays']
  lateness: number[]
  memory: Memory[]
  cores: Cores
  connections: number
  moreFiles: number
  /** How those ended that did not end with 0. */
  badEnds: string[]
  doctor: { lines: string[]; code: number }
  burst: { fromMs: number; untilMs: number; taken: number; refused: number }
  /** Of each event. */
  recordedAtMs: Map<string, number>
  /** Of the services' logs. */
  errors: string[]
}

const API_COUNT = 2
const DAEMON_COUNT = 2
const BURST_A_SECOND = 1000
/** Of a patient so few logins that no limit is met. */
const LOGINS_OF_PATIENT = 4
/** Logins among the calls, three calls each. */
const LOGIN_SHARE = 0.1 / 3
const LOOK_MS = 100
/** Before the end of the usual work nobody is killed any more. */
const LAST_KILL_MS = 5000

/** @param isOver whether to stop early */
export async function runSoak(
  stage: SoakStage,
  plan: SoakPlan,
  say: (line: string) => void,
  isOver: () => boolean = () => false,
): Promise<SoakResult> {
  const { arena, receiver, ledger } = stage
  const logins = plan.rate * plan.seconds * LOGIN_SHARE
  const counts = { accounts: plan.accounts, patients: Math.ceil(logins / LOGINS_OF_PATIENT) + plan.accounts }
  const world = await prepareWorld(arena, receiver, ledger, counts)
  const sms = await startSmsSink()
  const heal = makeFaulty(receiver, world.webhooks)
  const hostile = plan.killEveryMs === undefined ? undefined : await addHostile(arena, stage.tls, world.accounts)
  try {
    return await soak({ ...stage, world, sms, heal, hostile }, plan, say, isOver)
  } finally {
    sms.close()
    for (const endpoint of hostile?.endpoints ?? []) endpoint.close()
  }
}

interface Prepared extends SoakStage {
  world: SoakWorld
  sms: SmsSink
  heal: () => void
  hostile: Hostile | undefined
}

async function soak(
  prepared: Prepared,
  plan: SoakPlan,
  say: (line: string) => void,
  isOver: () => boolean,
): Promise<SoakResult> {
  const { arena, receiver, ledger, world, sms } = prepared
  // Straight to the database: the proxy of each process would be work for the one that measures.
  const env = { ...plan.env, MYSQL_URL: arena.mysqlUrl, MYSQL_DAEMON_URL: arena.mysqlUrl, SMS_GATEWAY_URL: sms.url }
  const slots = await ProcessSlots.start(arena, { api: API_COUNT, daemon: DAEMON_COUNT }, { api: env, daemon: env })
  const calls = new SoakCalls({ arena, receiver, ledger, world, sms, target: () => slots.target() })
  const lab = new LabEvents(arena, ledger, world.accounts, calls)
  const watch = new ProcessWatch(slots, arena.database, () => prepared.server?.pid)
  const forgotten = plan.forgets ? world.webhooks.find(({ fault }) => fault === undefined) : undefined
  if (forgotten) receiver.forget(forgotten.id)
  try {
    say('warming up …')
    await usualWork(prepared, { ...plan, seconds: plan.warmUpSeconds, killEveryMs: undefined }, slots, calls, lab, say, isOver) // prettier-ignore
    calls.startTiming()
    // What is idle after that is closed, but for what the pools keep.
    await pause(plan.files.idleMs)
    const filesBefore = openFiles(slots)
    const fromMs = monotonicMs()
    watch.start()
    say(`${plan.rate} calls and ${plan.events} events of the lab a second for ${plan.seconds} s …`)
    await usualWork(prepared, plan, slots, calls, lab, say, isOver)
    const usual = structuredClone(calls.delays)
    const burst = await burstOf(plan, calls, world, say, isOver)
    say('everything that fails is made well; what waits is delivered …')
    await settle(prepared, calls)
    await watch.stop()
    calls.close()
    const moreFiles = await untilFilesClosed(slots, filesBefore, plan.files.more, plan.files.timeoutMs)
    const badEnds = await slots.stop()
    return {
      ...(await readStored(prepared, calls)),
      calls,
      fromMs,
      usual,
      burst,
      lateness: watch.lateness,
      memory: watch.memory(),
      cores: watch.cores(),
      connections: watch.mostConnections,
      moreFiles,
      badEnds,
      doctor: await runDoctor(prepared, plan),
      errors: await errorLines(join(prepared.folder, 'logs')),
    }
  } finally {
    await watch.stop()
    calls.close()
    lab.close()
  }
}

async function usualWork(
  prepared: Prepared,
  plan: SoakPlan,
  slots: ProcessSlots,
  calls: SoakCalls,
  lab: LabEvents,
  say: (line: string) => void,
  isOver: () => boolean,
): Promise<void> {
  let isDone = false
  const killing = killAgain(prepared, plan, slots, () => isDone || isOver())
  const kinds = mixedCalls(plan.random)
  let answered = 0
  const minute = setInterval(
    () => say(`${answered} calls answered, ${calls.unplanned.length} of them unplanned`),
    60_000,
  )
  const count = (call: Promise<void>) => call.then(() => void answered++)
  await Promise.all([
    onSchedule({ rate: plan.rate, count: plan.rate * plan.seconds }, (dueAtMs) => count(calls.make(kinds.next().value!, dueAtMs)), isOver), // prettier-ignore
    onSchedule({ rate: plan.events, count: plan.events * plan.seconds }, (dueAtMs) => count(lab.next(dueAtMs)), isOver), // prettier-ignore
  ]).finally(() => clearInterval(minute))
  isDone = true
  await killing
  await until('all are up again', () => areUp(slots), 60_000)
}

const areUp = (slots: ProcessSlots) =>
  slots.running('api').length === API_COUNT && slots.running('daemon').length === DAEMON_COUNT

/** API and daemon in turn, and the database in the middle. */
async function killAgain(
  { ledger, server }: Pick<Prepared, 'ledger' | 'server'>,
  plan: SoakPlan,
  slots: ProcessSlots,
  isOver: () => boolean,
): Promise<void> {
  if (plan.killEveryMs === undefined) return
  const startMs = monotonicMs()
  const middleMs = (plan.seconds * 1000) / 2
  let dueMs = plan.killEveryMs
  let isDatabaseDue = server !== undefined
  let what: ProcessKind = 'api'
  while (!isOver()) {
    await pause(LOOK_MS)
    const passedMs = monotonicMs() - startMs
    if (isDatabaseDue && passedMs >= middleMs) {
      isDatabaseDue = false
      await killDatabase(server!, ledger)
    }
    // The last kill leaves time to come back.
    if (passedMs < dueMs || passedMs > plan.seconds * 1000 - LAST_KILL_MS) continue
    if (!slots.killOne(what, plan.random, ledger)) continue
    what = what === 'api' ? 'daemon' : 'api'
    dueMs = passedMs + plan.killEveryMs
  }
}

/** Leads of all accounts in turn, a thousand a second, beside a usual amount of other calls. */
async function burstOf(
  plan: SoakPlan,
  calls: SoakCalls,
  { accounts }: SoakWorld,
  say: (line: string) => void,
  isOver: () => boolean,
): Promise<SoakResult['burst']> {
  const fromMs = monotonicMs()
  const refusedBefore = calls.statuses.get(429) ?? 0
  let taken = 0
  if (plan.burst > 0 && !isOver()) {
    say(`a burst of ${plan.burst} leads …`)
    calls.isBurst = true
    const kinds = mixedCalls(plan.random)
    let n = 0
    const lead = async (dueAtMs: number) => {
      if (await calls.lead(accounts[n % accounts.length]!, n++, dueAtMs)) taken++
    }
    await Promise.all([
      onSchedule({ rate: BURST_A_SECOND, count: plan.burst }, lead, isOver),
      onSchedule({ rate: plan.rate, count: Math.ceil((plan.rate * plan.burst) / BURST_A_SECOND) }, (dueAtMs) => calls.make(kinds.next().value!, dueAtMs), isOver), // prettier-ignore
    ])
  }
  calls.isBurst = false
  return { fromMs, untilMs: monotonicMs(), taken, refused: (calls.statuses.get(429) ?? 0) - refusedBefore }
}

/** One more event for each endpoint that was faulty: its first success brings what waits. */
async function settle({ arena, world, heal, hostile }: Prepared, calls: SoakCalls): Promise<void> {
  heal()
  for (const webhook of hostile?.webhooks ?? []) {
    // It may have been deleted by itself.
    await calls.ask({ ...deletion(webhook), dueAtMs: monotonicMs(), planned: [200] })
  }
  for (const { fault, account } of world.webhooks) if (!isLive(fault)) await calls.bill(account, monotonicMs())
  await untilDry(arena)
}

/** By so much the database's clock and this process's own may drift apart in a run. */
const CLOCKS_WITHIN_MS = 100

async function readStored(
  { arena, receiver, ledger }: Prepared,
  calls: SoakCalls,
): Promise<Pick<SoakResult, 'evidence' | 'recordedAtMs'>> {
  const rows = await arena.database.knex('events').select('id', 'subject_id', 'lab_id', 'recorded_at')
  const aheadMs = arena.clock.nowMs() - monotonicMs()
  const recordedAtMs = new Map(rows.map((row) => [row.id as string, row.recorded_at.getTime() - aheadMs]))
  const events = rows.map((row) => ({ event: row.id, lead: row.subject_id, lab: row.lab_id }))
  for (const line of events) ledger.append('events', line)
  const [kills, webhooks] = [readLedger(ledger.folder, 'killer'), readLedger(ledger.folder, 'webhooks')]
  const late = await arena.database
    .knex('attempts as a')
    .join('webhooks as w', 'w.id', 'a.webhook_id')
    .where({ 'a.class': 'timeout' })
    .select('w.endpoint', 'a.event_id', 'a.started_at', 'a.duration_ms')
  // As the receiver names them.
  const timedOut = Map.groupBy(late, (row) => `${row.endpoint.split('/').at(-1)} ${row.event_id}`)
  const isGivenUp = ({ webhook, event, atMs, answered }: Receipt) =>
    (timedOut.get(`${webhook} ${event}`) ?? []).some((row) => {
      const fromMs = row.started_at.getTime() - aheadMs
      return fromMs - CLOCKS_WITHIN_MS <= atMs && fromMs + row.duration_ms - CLOCKS_WITHIN_MS <= answered!.atMs
    })
  return {
    evidence: { clients: calls.clients, receipts: receiver.receipts, kills, events, webhooks, isGivenUp },
    recordedAtMs,
  }
}

/** `make doctor`, on the soak's own database. */
async function runDoctor({ arena, folder }: Prepared, { env }: SoakPlan): Promise<SoakResult['doctor']> {
  const child = spawn(process.execPath, [join(import.meta.dirname, '..', 'doctor.ts')], {
    env: { ...process.env, NODE_ENV: 'test', ...env, MYSQL_URL: arena.mysqlUrl, DATA_DIR: folder },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += chunk))
  const [code] = await once(child, 'close')
  return { lines: output.trim().split('\n'), code }
}

/** Of the services' logs: what a person would have to act on. */
async function errorLines(folder: string): Promise<string[]> {
  const found: string[] = []
  for (const name of readdirSync(folder)) {
    for await (const line of createInterface({ input: createReadStream(join(folder, name)) })) {
      if (line.includes('"level":50')) found.push(line)
    }
  }
  return found
}
