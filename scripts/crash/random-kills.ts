/**
 * Three APIs and three daemons under load, and a killer that takes one of them, or the database, without a warning, again
 * and again.
 */
import { cpSync } from 'node:fs'
import { join } from 'node:path'
import { monotonicMs } from '../../src/clock.ts'
import { CrashArena, isDry, until } from './crash-arena.ts'
import { CrashLoad, writeEvents } from './crash-load.ts'
import type { CrashServer } from './crash-server.ts'
import { pause } from './crash-stage.ts'
import { startHookedReceiver } from './hooked-receiver.ts'
import { judge, readEvidence, type Verdict } from './ledger-check.ts'
import { Ledger, type ClientLine, type KillerLine } from './ledger.ts'
import { killDatabase, ProcessSlots } from './process-slots.ts'

const APIS = 3
const DAEMONS = 3
const RATE = 40
/** What waits at the end may take long on a busy machine, but something of it must move in this time. */
const STILL_MS = 60_000
const SETTLE_TIMEOUT_MS = 600_000
const LOOK_MS = 250
/** Without a kill for so long nothing comes up any more. */
const KILL_WITHIN_MS = 120_000
/** What is killed, in shares. A daemon is killed less often: it takes the others five seconds to miss one. */
const SHARES = { api: 0.76, daemon: 0.2, database: 0.04 }
const MIN_GAP_MS = { api: 400, daemon: 3500, database: 25_000 }

/** So that an endpoint which a busy machine lets time out is asked again while the run waits. */
const DAEMON_SETTINGS = { RETRY_SCHEDULE: '1,1,2,2,5,5,5,5' }

export interface RandomResult {
  verdict: Verdict
  kills: Record<KillerLine['what'], number>
  /** Calls that failed without a kill of their process or a fault of the database in their time. */
  unprovoked: number
  /** From the database's return to the first call that succeeded, the slowest. */
  slowestRecoveryMs: number
}

export async function killAtRandom(
  server: CrashServer,
  kills: number,
  random: () => number,
  ledgerFolder: string,
  say: (line: string) => void,
): Promise<RandomResult> {
  const folder = join(server.folder, 'random')
  const ledger = new Ledger(ledgerFolder)
  const receiver = await startHookedReceiver(server.tls, ledger)
  const arena = await CrashArena.open(await server.newDatabase(), folder, server.tls)
  try {
    const slots = await ProcessSlots.start(arena, { api: APIS, daemon: DAEMONS }, { api: {}, daemon: DAEMON_SETTINGS })
    const load = await CrashLoad.prepare({ arena, receiver, ledger, rate: RATE, target: () => slots.target() })
    load.start()
    const counts = { api: 0, daemon: 0, database: 0 }
    const lastAtMs = { api: 0, daemon: 0, database: monotonicMs() }
    for (let n = 0; n < kills;) {
      await new Promise((resolve) => setTimeout(resolve, 100))
      if (monotonicMs() - Math.max(...Object.values(lastAtMs)) > KILL_WITHIN_MS) throw new Error('nobody can be killed')
      const what = pick(random())
      if (monotonicMs() - lastAtMs[what] < MIN_GAP_MS[what]) continue
      if (what === 'database') await killDatabase(server, ledger)
      else if (!slots.killOne(what, random, ledger)) continue
      lastAtMs[what] = monotonicMs()
      counts[what]++
      if (++n % 25 === 0) say(`${n} of ${kills} random kills`)
    }
    await load.stop()
    await until('a daemon is up', () => slots.running('daemon').length > 0)
    const stoppedAtMs = monotonicMs()
    await untilDry(arena)
    say(`everything was delivered ${Math.round(monotonicMs() - stoppedAtMs)} ms after the last call`)
    await writeEvents(arena, ledger)
    const evidence = readEvidence(ledger.folder)
    return {
      verdict: judge(evidence),
      kills: counts,
      unprovoked: unprovoked(evidence.clients, evidence.kills).length,
      slowestRecoveryMs: slowestRecovery(evidence.clients, evidence.kills),
    }
  } catch (error) {
    for (const line of await whatWaits(arena)) say(line)
    cpSync(join(folder, 'logs'), join(ledgerFolder, 'logs'), { recursive: true })
    throw error
  } finally {
    await arena.close()
    receiver.close()
    ledger.close()
  }
}

/** Slow is not stuck: as long as something moves it is waited for. */
export async function untilDry(arena: CrashArena): Promise<void> {
  let [last, movedAtMs] = ['', monotonicMs()]
  const hasEnded = async () => {
    if (await isDry(arena.database)) return true
    await pause(LOOK_MS)
    const [now] = await whatWaits(arena)
    if (now !== last) [last, movedAtMs] = [now!, monotonicMs()]
    if (monotonicMs() - movedAtMs > STILL_MS) throw new Error(`nothing has moved for ${STILL_MS / 1000} s: ${now}`)
    return false
  }
  await until('everything is delivered', hasEnded, SETTLE_TIMEOUT_MS)
}

/** For the person who looks for the cause: how much waits and for whom, and where the first few stand. */
async function whatWaits({ database: { knex } }: CrashArena): Promise<string[]> {
  const [events] = await knex('unrouted_events').count({ n: '*' })
  const [copies] = await knex('delivery_queue').count({ n: '*' }).sum({ attempts: 'attempts' })
  const lanes = await knex('lanes').whereNotNull('due_at').groupBy('owner').select('owner').count({ n: '*' })
  const daemons = await knex('daemons').select('token', 'beat')
  const rows = await knex('delivery_queue as q')
    .join('lanes as l', 'l.webhook_id', 'q.webhook_id')
    .limit(5)
    .select('q.webhook_id', 'q.event_id', 'q.due_at', 'q.attempts', 'l.due_at as lane_due_at', 'l.owner')
  return [
    `unrouted events: ${events!.n}, waiting copies: ${copies!.n}, attempts made for them: ${copies!.attempts}`,
    `lanes that are due, by owner: ${JSON.stringify(lanes)}`,
    `daemons: ${JSON.stringify(daemons)}`,
    ...rows.map((row) => JSON.stringify(row)),
  ]
}

function pick(value: number): keyof typeof SHARES {
  return value < SHARES.api ? 'api' : value < SHARES.api + SHARES.daemon ? 'daemon' : 'database'
}

/** How long after the database's return an API may still refuse. */
const READY_WITHIN_MS = 10_000
/** A kill is written down a moment before or after the client sees it. */
const SLACK_MS = 200

/** Calls that failed without a kill of their process or a fault of the database in their time. */
export function unprovoked<Call extends Pick<ClientLine, 'status' | 'pid' | 'sentAtMs' | 'endedAtMs'>>(
  clients: Call[],
  kills: KillerLine[],
): Call[] {
  const ofProcess = Map.groupBy(kills, ({ pid }) => pid)
  const faults = kills.filter(({ what }) => what === 'database')
  return clients.filter(({ status, pid, sentAtMs, endedAtMs }) => {
    if (status === 200) return false
    if (status === 503) return !faults.some((one) => one.atMs <= endedAtMs && sentAtMs <= one.untilMs + READY_WITHIN_MS)
    if (status !== null) return true
    return !(ofProcess.get(pid) ?? []).some(
      (one) => one.atMs <= endedAtMs + SLACK_MS && one.atMs >= sentAtMs - SLACK_MS,
    )
  })
}

function slowestRecovery(clients: ClientLine[], kills: KillerLine[]): number {
  const waits = kills
    .filter(({ what }) => what === 'database')
    .map(({ untilMs }) => {
      const after = clients.filter(({ status, sentAtMs, endedAtMs }) => status === 200 && endedAtMs >= untilMs && sentAtMs >= untilMs - 5000) // prettier-ignore
      return Math.min(...after.map(({ endedAtMs }) => endedAtMs)) - untilMs
    })
  return Math.max(0, ...waits)
}
