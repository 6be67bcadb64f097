/**
 * `make bench-database-faults`: each fault of the database under load, and commits whose answer is lost.
 *
 *     node scripts/crash/bench-database-faults.ts [--seconds 6] [--rounds 1] [--cuts 40] [--only disk|faults]
 *
 * Every call is answered in under 5 s, 503 at the worst; nothing that was acknowledged is lost; within 10 s of the fault's
 * end a new lead is taken and delivered, without a restart. The probes of both processes are answered at once all the while:
 * /livez with 200, /readyz with 503 within 2 s of what lasts, and with 200 within 10 s of its end. A round takes four times --seconds and half a minute, a cut half a
 * second, the full disk a minute. Exit 1 when that is not so.
 */
import { cpSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { monotonicMs } from '../../src/clock.ts'
import { readConfig } from '../../src/config.ts'
import { StartFault } from '../processes.ts'
import { usableArguments, wholeNumber } from '../whole-number.ts'
import { CrashArena, isDry, until, type CrashProcess } from './crash-arena.ts'
import { CrashLoad, writeEvents } from './crash-load.ts'
import { CrashServer } from './crash-server.ts'
import { cutCommits, type CutResult } from './cut-commits.ts'
import { DATABASE_FAULTS, DISK_FULL, mountSmallDisk, type DatabaseFault } from './database-faults.ts'
import { startHookedReceiver, type HookedReceiver } from './hooked-receiver.ts'
import { complaints, isSound, judge, readEvidence, summary } from './ledger-check.ts'
import { Ledger, type ClientLine } from './ledger.ts'
import { call, leadBody } from './lead-client.ts'
import { ProbeWatch } from './probe-watch.ts'

const ANSWERED_WITHIN_MS = 5000
const HEALTHY_WITHIN_MS = 10_000
const DOWN_WITHIN_MS = 2000
const UP_WITHIN_MS = 10_000
/** The median of the probes' answers: a few of them wait for a machine that does other things, all of them for a database that is asked. */
const PROBED_WITHIN_MS = 50
/** Shorter ones may be over before anybody looks. */
const LASTING_MS = 3000
const RATE = 30
const DISK_MB = 420
/** Rows that fill a disk in seconds. */
const LONG_TEXT = 'x'.repeat(4000)

const { seconds, rounds, cuts, only } = usableArguments('bench-database-faults', () => {
  const { values } = parseArgs({
    options: {
      seconds: { type: 'string', default: '6' },
      rounds: { type: 'string', default: '1' },
      cuts: { type: 'string', default: '40' },
      only: { type: 'string' },
    },
  })
  if (values.only !== undefined && !['disk', 'faults'].includes(values.only)) throw new StartFault('--only takes disk or faults') // prettier-ignore
  return {
    seconds: wholeNumber('seconds', values.seconds, 1, 3600),
    rounds: wholeNumber('rounds', values.rounds, 1, 1000),
    cuts: wholeNumber('cuts', values.cuts, 1, 100_000),
    only: values.only,
  }
})
const say = (line: string) => process.stderr.write(`bench-database-faults: ${line}\n`)

interface Stage {
  server: CrashServer
  arena: CrashArena
  receiver: HookedReceiver
  ledger: Ledger
  api: CrashProcess
  daemon: CrashProcess
}

interface Seen {
  name: string
  remark: string
  atMs: number
  untilMs: number
  healthyAfterMs: number
}

async function withStage<T>(parent: string, redoLogMb: number, work: (stage: Stage) => Promise<T>): Promise<T> {
  const scratch = mkdtempSync(join(tmpdir(), 'lis-ledger-'))
  const ledgerFolder = join(scratch, 'ledger')
  const server = await CrashServer.start(parent, redoLogMb, scratch)
  const ledger = new Ledger(ledgerFolder)
  const receiver = await startHookedReceiver(server.tls, ledger)
  const arena = await CrashArena.open(await server.newDatabase(), join(scratch, 'faults'), server.tls)
  try {
    const [api, daemon] = await Promise.all([arena.startApi(), arena.startDaemon()])
    return await work({ server, arena, receiver, ledger, api, daemon })
  } catch (error) {
    const kept = join(readConfig().dataDir, 'crash-logs')
    cpSync(scratch, kept, { recursive: true })
    say(`the logs are kept in ${kept}`)
    throw error
  } finally {
    await arena.close()
    receiver.close()
    ledger.close()
    await server.close()
    rmSync(scratch, { recursive: true, force: true })
  }
}

/** @returns whether all is as it must be */
async function runFaults(stage: Stage, faults: DatabaseFault[], extra: Record<string, string>): Promise<boolean> {
  const { server, arena, receiver, ledger, api, daemon } = stage
  const pid = api.service.pid
  const load = await CrashLoad.prepare({
    arena,
    receiver,
    ledger,
    rate: RATE,
    extra,
    target: () => ({ url: api.url, pid }),
  })
  load.start()
  const watch = new ProbeWatch({ API: api.url, daemon: daemon.url })
  const seen: Seen[] = []
  for (const fault of faults) {
    say(`${fault.name} …`)
    const atMs = monotonicMs()
    const remark = await fault.run({ server, api, daemon, lastsMs: seconds * 1000 })
    const untilMs = monotonicMs()
    ledger.append('killer', { what: 'database', how: 'fault', pid: server.pid, point: fault.name, atMs, untilMs })
    const healthyAfterMs = await healthyAfter(stage, untilMs)
    seen.push({ name: fault.name, remark: remark ?? '', atMs, untilMs, healthyAfterMs })
    // The next fault is to meet processes that are ready.
    await watch.ready(untilMs, 2 * UP_WITHIN_MS)
  }
  await load.stop()
  await watch.stop()
  await until('everything is delivered', () => isDry(arena.database), 60_000)
  await writeEvents(arena, ledger)
  const evidence = readEvidence(ledger.folder)
  const stored = new Set(await arena.database.knex('entries').pluck('integrator_id'))
  const isRight = seen
    .map((one, n) => {
      const nextAtMs = seen[n + 1]?.atMs ?? Infinity
      const isAnswered = report(one, nextAtMs, evidence.clients, stored)
      return reportProbes(watch, one, nextAtMs) && isAnswered
    })
    .every(Boolean)
  const verdict = judge(evidence)
  console.log(summary(verdict))
  for (const line of complaints(verdict)) console.log(line)
  return isRight && isSound(verdict)
}

/** From the fault's end until a new lead is taken and both its webhooks have it. */
async function healthyAfter({ arena, receiver, api }: Stage, untilMs: number): Promise<number> {
  const tenant = await arena.addTenant()
  const webhook = await arena.addWebhook(tenant, receiver.urlOf)
  const post = () => call(undefined, 'POST', `${api.url}/client/crm/lead/create`, tenant, leadBody(tenant, 'marker'))
  await until('a lead is taken', async () => (await post()).status === 200, 60_000)
  await until('it is delivered', () => receiver.receipts.some((one) => one.webhook === webhook), 60_000)
  return monotonicMs() - untilMs
}

function report(
  { name, remark, atMs, untilMs, healthyAfterMs }: Seen,
  nextAtMs: number,
  clients: ClientLine[],
  stored: Set<string>,
): boolean {
  // A call counts to the fault during or behind which it ended.
  const calls = clients.filter(({ endedAtMs }) => endedAtMs >= atMs && endedAtMs < nextAtMs)
  const count = (wanted: number) => calls.filter(({ status }) => status === wanted).length
  const others = calls.length - count(200) - count(503)
  const slowestMs = Math.max(0, ...calls.map(({ sentAtMs, endedAtMs }) => endedAtMs - sentAtMs))
  const storedAnyway = calls.filter(({ status, request }) => status === 503 && stored.has(request)).length
  console.log(
    `${name.padEnd(20)} lasted=${ms(untilMs - atMs)} calls 200=${count(200)} 503=${count(503)} others=${others} ` +
      `slowest=${ms(slowestMs)} stored after a 503=${storedAnyway} healthy after=${ms(healthyAfterMs)} ${remark}`,
  )
  return others === 0 && slowestMs < ANSWERED_WITHIN_MS && healthyAfterMs < HEALTHY_WITHIN_MS
}

/** Of faults that last and leave no connection: whoever is asked can't miss them. */
const UNREADY = ['stopped (SIGSTOP)', 'black hole', 'deaf', 'refused']

function reportProbes(watch: ProbeWatch, { name, atMs, untilMs }: Seen, nextAtMs: number): boolean {
  const mustBeDown = UNREADY.includes(name) && untilMs - atMs >= LASTING_MS
  return ['API', 'daemon']
    .map((target) => watch.judge(target, atMs, untilMs, nextAtMs))
    .map(({ target, notAlive, downAfterMs, upAfterMs, p50Ms, p99Ms }) => {
      const down = downAfterMs === undefined ? 'never' : ms(downAfterMs)
      const up = upAfterMs === undefined ? 'never' : ms(upAfterMs)
      console.log(`  probes of the ${target}: /livez not 200=${notAlive} /readyz down after=${down} up after=${up} answered p50=${ms(p50Ms)} p99=${ms(p99Ms)}`) // prettier-ignore
      const isDown = !mustBeDown || (downAfterMs ?? Infinity) <= DOWN_WITHIN_MS
      return notAlive === 0 && isDown && (upAfterMs ?? Infinity) <= UP_WITHIN_MS && p50Ms <= PROBED_WITHIN_MS
    })
    .every(Boolean)
}

const ms = (value: number) => `${Math.round(value)} ms`

function reportCuts({ calls, refused, stored, repeated, delivered, records, recordsTwice }: CutResult): boolean {
  console.log(`commit cut, API      calls=${calls} 5xx=${refused} stored=${stored} repeat gets the first result=${repeated} delivered once=${delivered}`) // prettier-ignore
  console.log(`commit cut, daemon   records=${records} sent twice=${recordsTwice}`)
  return refused === calls && repeated === calls && delivered === calls && recordsTwice === 0
}

async function runDiskFull(): Promise<boolean> {
  const parent = mkdtempSync(join(tmpdir(), 'lis-disk-'))
  const disk = mountSmallDisk(parent, DISK_MB)
  try {
    if (!disk) {
      console.log('disk full            SKIPPED: a small disk can be mounted by root only')
      return true
    }
    return await withStage(parent, 64, (stage) =>
      runFaults(stage, [DISK_FULL], { address: LONG_TEXT, notes: LONG_TEXT }),
    )
  } finally {
    disk?.unmount()
    rmSync(parent, { recursive: true, force: true })
  }
}

async function main(): Promise<boolean> {
  const startedAtMs = monotonicMs()
  const faultsOfRounds = Array.from({ length: rounds }, () => DATABASE_FAULTS).flat()
  const faults =
    only === 'disk' ||
    (await withStage(tmpdir(), 96, async (stage) => {
      const isRight = await runFaults(stage, faultsOfRounds, {})
      return reportCuts(await cutCommits(stage, cuts)) && isRight
    }))
  const full = only === 'faults' || (await runDiskFull())
  const isRight = faults && full
  const tookSeconds = Math.round((monotonicMs() - startedAtMs) / 1000)
  console.log(`bench-database-faults: ${tookSeconds} s, ${isRight ? 'all as it must be' : 'NOT as it must be'}`)
  return isRight
}

main().then(
  (isRight) => process.exit(isRight ? 0 : 1),
  (error: Error) => {
    say(error.stack ?? error.message)
    process.exit(1)
  },
)
