/**
 * A number of APIs and daemons that is kept up: whoever is killed is started again, as a supervisor does.
 */
import { monotonicMs } from '../../src/clock.ts'
import type { CrashArena, CrashProcess } from './crash-arena.ts'
import type { CrashServer } from './crash-server.ts'
import type { Ledger } from './ledger.ts'

export type ProcessKind = 'api' | 'daemon'

export interface Slot {
  /** undefined: it is about to be started again. */
  process: CrashProcess | undefined
  startedAtMs: number
}

/** A daemon that is up for so long has seen long enough who else is alive. */
const SEASONED_MS = 8000
/** Until the next try, where a start failed: the database may be away. */
const RETRY_MS = 300

export class ProcessSlots {
  readonly slots: Record<ProcessKind, Slot[]>
  readonly #arena: CrashArena
  readonly #env: Record<ProcessKind, Record<string, string>>
  #turn = 0
  #isOver = false

  private constructor(
    arena: CrashArena,
    counts: Record<ProcessKind, number>,
    env: Record<ProcessKind, Record<string, string>>,
  ) {
    const empty = (count: number) => Array.from({ length: count }, (): Slot => ({ process: undefined, startedAtMs: 0 }))
    this.#arena = arena
    this.#env = env
    this.slots = { api: empty(counts.api), daemon: empty(counts.daemon) }
  }

  /** Resolves when all are up. */
  static async start(
    arena: CrashArena,
    counts: Record<ProcessKind, number>,
    env: Record<ProcessKind, Record<string, string>>,
  ): Promise<ProcessSlots> {
    const slots = new ProcessSlots(arena, counts, env)
    await Promise.all(
      (['api', 'daemon'] as const).flatMap((what) => slots.slots[what].map((slot) => slots.#fill(what, slot))),
    )
    return slots
  }

  running(what: ProcessKind): CrashProcess[] {
    return this.slots[what].flatMap(({ process }) => process ?? [])
  }

  /** The API that the next call goes to; undefined: none is there. */
  target(): { url: string; pid: number } | undefined {
    const alive = this.running('api')
    const process = alive[this.#turn++ % alive.length]
    return process && { url: process.url, pid: process.service.pid }
  }

  /** @returns false when none is there that may be taken: one stays, of the daemons one that can take over at once */
  killOne(what: ProcessKind, random: () => number, ledger: Ledger): boolean {
    const alive = this.slots[what].filter(({ process }) => process !== undefined)
    if (alive.length < 2) return false
    const slot = alive[Math.floor(random() * alive.length)]!
    const isSeasoned = (one: Slot) => one !== slot && monotonicMs() - one.startedAtMs > SEASONED_MS
    if (what === 'daemon' && !alive.some(isSeasoned)) return false
    const { kill, service } = slot.process!
    const atMs = monotonicMs()
    kill()
    const point = `kill of ${service.name}`
    ledger.append('killer', { what, how: 'kill', pid: service.pid, point, atMs, untilMs: atMs })
    slot.process = undefined
    void service.ended.then(() => this.#fill(what, slot))
    return true
  }

  /** SIGTERM to all. @returns how those ended that did not end with 0 */
  async stop(): Promise<string[]> {
    this.#isOver = true
    const all = [...this.running('api'), ...this.running('daemon')]
    await Promise.all(all.map((process) => process.stop()))
    const ends = await Promise.all(
      all.map(async ({ service }) => `${service.name} (${service.pid}): ${await service.ended}`),
    )
    return ends.filter((how) => !how.endsWith(': code 0'))
  }

  async #fill(what: ProcessKind, slot: Slot): Promise<void> {
    if (this.#isOver) return
    const env = this.#env[what]
    const started = await (what === 'api' ? this.#arena.startApi(env) : this.#arena.startDaemon(env)).catch(
      () => undefined,
    )
    if (!started) return void setTimeout(() => void this.#fill(what, slot), RETRY_MS)
    slot.process = started
    slot.startedAtMs = monotonicMs()
  }
}

/** SIGKILL, and started again as soon as it is gone. */
export async function killDatabase(server: CrashServer, ledger: Ledger): Promise<void> {
  const { pid } = server
  const atMs = monotonicMs()
  await server.kill()
  await server.restart()
  const untilMs = monotonicMs()
  ledger.append('killer', { what: 'database', how: 'fault', pid, point: 'kill of the database', atMs, untilMs })
}
