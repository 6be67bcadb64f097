/**
 * What the processes of a soak take: memory, open files, connections to the database; and by how much the machine itself is late
 * (Linux).
 */
import { readdirSync, readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import type { Database } from '../../db/connection.ts'
import { monotonicMs } from '../../src/clock.ts'
import { median } from '../bench/bench-result.ts'
import { pause } from '../crash/crash-stage.ts'
import type { ProcessKind, ProcessSlots } from '../crash/process-slots.ts'

const SAMPLE_MS = 1000
const TIMER_MS = 20
/** Fewer say nothing about whether memory grows: a process first takes what it needs. */
const LEAST_SAMPLES = 240

/** Of which program, or of all that runs on the machine. */
type Spender = ProcessKind | 'database' | 'bench' | 'machine'

/** Cores that each took on average, and what the machine has. */
export type Cores = Record<Spender, number> & { all: number; seconds: number }

export interface Memory {
  kind: ProcessKind
  pid: number
  mostMb: number
  /** Medians of the second fifth of the time and of the last; undefined: too short to say. */
  earlyMb: number | undefined
  lateMb: number | undefined
}

export class ProcessWatch {
  /** To the database, of the services and of this process together, the most. */
  mostConnections = 0
  /** By how much timers of this process were late, in ms. */
  readonly lateness: number[] = []
  readonly #slots: ProcessSlots
  readonly #database: Database
  readonly #databasePid: () => number | undefined
  readonly #spent: Record<Spender, number> = { api: 0, daemon: 0, database: 0, bench: 0, machine: 0 }
  readonly #ticks = new Map<number, number>()
  #startedAtMs = 0
  #endedAtMs = 0
  readonly #memory = new Map<number, { kind: ProcessKind; mb: number[] }>()
  #isOver = false
  #sampling: Promise<void> | undefined
  #timer: NodeJS.Timeout | undefined

  /** @param databasePid of its server, where that runs for nobody else */
  constructor(slots: ProcessSlots, database: Database, databasePid: () => number | undefined) {
    this.#slots = slots
    this.#database = database
    this.#databasePid = databasePid
  }

  start(): void {
    this.#startedAtMs = monotonicMs()
    this.#sampling = this.#sample()
    const look = (dueAtMs: number) => {
      this.lateness.push(Math.max(0, monotonicMs() - dueAtMs))
      this.#timer = setTimeout(look, TIMER_MS, monotonicMs() + TIMER_MS)
    }
    look(monotonicMs())
  }

  async stop(): Promise<void> {
    if (!this.#isOver) this.#endedAtMs = monotonicMs()
    this.#isOver = true
    clearTimeout(this.#timer)
    await this.#sampling
  }

  cores(): Cores {
    const seconds = (this.#endedAtMs - this.#startedAtMs) / 1000
    const share = (name: Spender) => this.#spent[name] / TICKS_A_SECOND / seconds
    const { api, daemon, database, bench, machine } = { api: share('api'), daemon: share('daemon'), database: share('database'), bench: share('bench'), machine: share('machine') } // prettier-ignore
    return { api, daemon, database, bench, machine, all: availableParallelism(), seconds }
  }

  memory(): Memory[] {
    return [...this.#memory].map(([pid, { kind, mb }]) => {
      const fifth = Math.floor(mb.length / 5)
      const isLong = mb.length >= LEAST_SAMPLES
      return {
        kind,
        pid,
        mostMb: Math.max(...mb),
        earlyMb: isLong ? median(mb.slice(fifth, 2 * fifth)) : undefined,
        lateMb: isLong ? median(mb.slice(-fifth)) : undefined,
      }
    })
  }

  #spend(name: Spender, pid: number, ticks: number | undefined): void {
    if (ticks === undefined) return
    this.#spent[name] += ticks - (this.#ticks.get(pid) ?? ticks)
    this.#ticks.set(pid, ticks)
  }

  async #sample(): Promise<void> {
    while (!this.#isOver) {
      for (const kind of ['api', 'daemon'] as const) {
        for (const { service } of this.#slots.running(kind)) {
          const mb = residentMb(service.pid)
          if (mb === undefined) continue
          this.#spend(kind, service.pid, ticksOf(service.pid))
          const known = this.#memory.get(service.pid) ?? { kind, mb: [] }
          known.mb.push(mb)
          this.#memory.set(service.pid, known)
        }
      }
      this.#spend('bench', process.pid, ticksOf(process.pid))
      const databasePid = this.#databasePid()
      if (databasePid !== undefined) this.#spend('database', databasePid, ticksOf(databasePid))
      this.#spend('machine', 0, machineTicks())
      // The database may be away.
      this.mostConnections = Math.max(this.mostConnections, await connectionsOf(this.#database).catch(() => 0))
      await pause(SAMPLE_MS)
    }
  }
}

const TICKS_A_SECOND = 100

/** undefined: it is gone. */
function ticksOf(pid: number): number | undefined {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' ')
    return Number(fields[11]) + Number(fields[12])
  } catch {
    return undefined
  }
}

/** Of everybody, also of other machines that took our time. */
function machineTicks(): number {
  const [user, nice, system, , , irq, softirq, steal] = readFileSync('/proc/stat', 'utf8').split('\n')[0]!.split(/\s+/).slice(1).map(Number) as number[] // prettier-ignore
  return user! + nice! + system! + irq! + softirq! + steal!
}

/** Of everybody to this database, also of this process. */
async function connectionsOf({ knex }: Database): Promise<number> {
  const [[row]] = await knex.raw('SELECT COUNT(*) AS n FROM information_schema.processlist WHERE db = DATABASE()')
  return Number(row.n)
}

/** undefined: it is gone. */
function residentMb(pid: number): number | undefined {
  try {
    return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]) / 1024
  } catch {
    return undefined
  }
}

/** Of each process, by its id. */
export function openFiles(slots: ProcessSlots): Map<number, number> {
  const all = [...slots.running('api'), ...slots.running('daemon')]
  return new Map(all.map(({ service }) => [service.pid, readdirSync(`/proc/${service.pid}/fd`).length]))
}

/**
 * Waits until those that were there at the start have no more open files than then, and so many more.
 * @returns by how many the one with the most more has at last
 */
export async function untilFilesClosed(
  slots: ProcessSlots,
  before: Map<number, number>,
  more: number,
  timeoutMs: number,
): Promise<number> {
  const endMs = monotonicMs() + timeoutMs
  for (;;) {
    const now = openFiles(slots)
    const growth = [...before].flatMap(([pid, count]) => (now.has(pid) ? [now.get(pid)! - count] : []))
    const most = Math.max(0, ...growth)
    if (most <= more || monotonicMs() > endMs) return most
    await pause(SAMPLE_MS)
  }
}
