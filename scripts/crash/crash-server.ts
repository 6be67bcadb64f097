/**
 * The database server of a run: a MariaDB of its own in a temporary folder, with the durable settings of `make run`, which
 * can be killed, stopped and started again. Its folder goes with it.
 */
import { mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { migrate } from '../../db/migrate.ts'
import { processClock } from '../../src/clock.ts'
import { createLogger } from '../../src/logger.ts'
import { makeSureOfDevTls, type DevTls } from '../dev-tls.ts'
import { startLocalDatabase, type LocalDatabase } from '../local-database.ts'

export class CrashServer {
  readonly folder: string
  readonly tls: DevTls
  readonly #redoLogMb: number
  #running: LocalDatabase
  #databases = 0

  private constructor(folder: string, tls: DevTls, redoLogMb: number, running: LocalDatabase) {
    this.folder = folder
    this.tls = tls
    this.#redoLogMb = redoLogMb
    this.#running = running
  }

  /**
   * @param parent where the folder is made
   * @param logs where its log goes; undefined: into the folder
   */
  static async start(parent = tmpdir(), redoLogMb = 96, logs?: string): Promise<CrashServer> {
    const folder = mkdtempSync(join(parent, 'lis-crash-'))
    try {
      if (logs) symlinkSync(logs, join(folder, 'logs'))
      const running = await startLocalDatabase({ dataDir: folder, redoLogMb })
      return new CrashServer(folder, await makeSureOfDevTls(folder, processClock.nowMs()), redoLogMb, running)
    } catch (error) {
      rmSync(folder, { recursive: true, force: true })
      throw error
    }
  }

  get pid(): number {
    return this.#running.pid
  }

  /** @returns the URL of a new database with the current schema */
  async newDatabase(): Promise<string> {
    const url = new URL(this.#running.mysqlUrl)
    url.pathname = `/lis_${++this.#databases}`
    await migrate(url.href, createLogger('migrate', 'warn'))
    return url.href
  }

  /** SIGKILL; returns when it is gone. */
  async kill(): Promise<void> {
    process.kill(this.#running.pid, 'SIGKILL')
    await this.#running.ended
  }

  /** Starts it again if it has ended by itself, as a supervisor does. @returns whether it had */
  async revive(): Promise<boolean> {
    const isUp = Symbol('up')
    if ((await Promise.race([this.#running.ended, Promise.resolve(isUp)])) === isUp) return false
    await this.restart()
    return true
  }

  async restart(): Promise<void> {
    this.#running = await startLocalDatabase({ dataDir: this.folder, redoLogMb: this.#redoLogMb })
  }

  async close(): Promise<void> {
    await this.#running.stop()
    rmSync(this.folder, { recursive: true, force: true })
  }
}
