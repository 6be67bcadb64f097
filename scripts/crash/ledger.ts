/**
 * What was seen during a run, in append-only files: by the clients, by the receiver, by the killer, and at the end what the
 * database holds. Times are monotonic milliseconds of the one process that writes them all.
 */
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'

export interface ClientLine {
  request: string
  account: string
  /** The process that was asked. */
  pid: number
  sentAtMs: number
  endedAtMs: number
  /** null: the connection broke, or no answer came in time. */
  status: number | null
  leadId: string | null
}

export type ReceiverLine =
  | { kind: 'received'; n: number; webhook: string; event: string; atMs: number }
  | { kind: 'answered'; n: number; status: number; atMs: number }

export interface KillerLine {
  what: 'api' | 'daemon' | 'database'
  /** `kill`: SIGKILL. `stop`: SIGTERM. `fault`: of the database, until `untilMs`. */
  how: 'kill' | 'stop' | 'fault'
  pid: number
  point: string
  atMs: number
  untilMs: number
}

/** A committed event, read from the database when the run is over. */
export interface EventLine {
  event: string
  lead: string
  lab: string
}

/** A webhook that was live during the whole run. */
export interface WebhookLine {
  webhook: string
  lab: string
}

interface Lines {
  client: ClientLine
  receiver: ReceiverLine
  killer: KillerLine
  events: EventLine
  webhooks: WebhookLine
}

export class Ledger {
  readonly folder: string
  readonly #files = new Map<keyof Lines, number>()

  constructor(folder: string) {
    this.folder = folder
    mkdirSync(folder, { recursive: true })
  }

  append<Name extends keyof Lines>(name: Name, line: Lines[Name]): void {
    let file = this.#files.get(name)
    if (file === undefined) this.#files.set(name, (file = openSync(join(this.folder, `${name}.ndjson`), 'a')))
    writeSync(file, `${JSON.stringify(line)}\n`)
  }

  close(): void {
    for (const file of this.#files.values()) closeSync(file)
    this.#files.clear()
  }
}

export function readLedger<Name extends keyof Lines>(folder: string, name: Name): Lines[Name][] {
  const file = join(folder, `${name}.ndjson`)
  if (!existsSync(file)) return []
  return readFileSync(file, 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line))
}
