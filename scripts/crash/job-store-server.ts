/**
 * A server of MongoDB's protocol that can be stopped, slowed, killed and started again: FerretDB, as the tests have it
 * (test/servers/ferretdb.sh builds it once, which needs Go).
 */
import { execFileSync, spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { argumentsOf } from '../processes.ts'
import { until } from './crash-arena.ts'
import { pause } from './crash-stage.ts'

const SCRIPT = join(import.meta.dirname, '..', '..', 'test', 'servers', 'ferretdb.sh')
/** Of each of these the slowed server may run a tenth. */
const SLOW_TURN_MS = 1000

export class JobStoreServer {
  readonly url: string
  readonly #folder: string
  readonly #command: string[]
  #pid: number

  /** @throws where it can't be had on this machine */
  constructor(folder: string) {
    this.#folder = folder
    this.url = execFileSync(SCRIPT, ['start', folder], { stdio: ['ignore', 'pipe', 'inherit'] })
      .toString()
      .trim()
    this.#pid = Number(readFileSync(join(folder, 'pid'), 'utf8'))
    this.#command = argumentsOf(this.#pid)
  }

  /** Stands still for so long: connections stay open and say nothing. */
  async stopFor(ms: number): Promise<void> {
    process.kill(this.#pid, 'SIGSTOP')
    await pause(ms)
    process.kill(this.#pid, 'SIGCONT')
  }

  /** Runs a tenth of each second. */
  async slowFor(ms: number): Promise<void> {
    for (let leftMs = ms; leftMs > 0; leftMs -= SLOW_TURN_MS) {
      await this.stopFor(0.9 * SLOW_TURN_MS)
      await pause(0.1 * SLOW_TURN_MS)
    }
  }

  /** Killed, not there for so long, and started again on what it had stored. */
  async goneFor(ms: number): Promise<void> {
    process.kill(this.#pid, 'SIGKILL')
    await pause(ms)
    const [binary, ...args] = this.#command
    const child = spawn(binary!, args, { stdio: 'ignore' })
    this.#pid = child.pid!
    await until('the job store is back', () => this.#accepts())
  }

  close(): void {
    try {
      process.kill(this.#pid, 'SIGKILL')
    } catch {
      // It is gone already.
    }
    execFileSync(SCRIPT, ['stop', this.#folder])
  }

  #accepts(): Promise<boolean> {
    const { hostname, port } = new URL(this.url)
    return new Promise((resolve) => {
      const socket = connect(Number(port), hostname)
      socket.on('connect', () => resolve(true)).on('error', () => resolve(false))
      socket.on('connect', () => socket.destroy())
    })
  }
}
