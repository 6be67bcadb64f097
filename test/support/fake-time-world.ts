/**
 * API, daemon and database as processes, some of them under a clock that the test moves, with a real receiver and a real SMTP
 * server. Each webhook has a lab of its own, so that a lead reaches the one that it is meant for.
 */
import { spawn, type ChildProcess } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { expect } from 'vitest'
import { connectDatabase, type Database } from '../../db/connection.ts'
import { migrate } from '../../db/migrate.ts'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { startLocalDatabase, type LocalDatabase } from '../../scripts/local-database.ts'
import { insertAccount } from '../../src/accounts/accounts-repository.ts'
import { createAccessTokens } from '../../src/auth/access-token.ts'
import { insertLab } from '../../src/catalogue/labs-repository.ts'
import { DatabaseClock } from '../../src/clock.ts'
import { deriveKeys } from '../../src/crypto.ts'
import { newId } from '../../src/ids.ts'
import { createLogger } from '../../src/logger.ts'
import { FakeTime } from '../../scripts/crash/fake-time.ts'
import { startSmtpServer, type TestSmtpServer } from './smtp.ts'
import { createTestTls } from './tls.ts'

/** A condition that a loaded machine may take long to reach. */
export const PATIENT = { timeout: 60_000, interval: 50 }

export interface Process {
  name: string
  /** What it has logged so far. */
  lines: Record<string, unknown>[]
  port: number
  child: ChildProcess
}

export interface FakedWebhook {
  id: string
  name: string
  labId: string
}

export class FakeTimeWorld {
  /** The database's clock, and that of every process that is started with it. */
  readonly time: FakeTime
  readonly clock = new DatabaseClock()
  readonly smtpMails = () => this.#smtp.mails
  /** Names of webhooks whose endpoint answers 204; the others answer 500. */
  readonly healthy = new Set<string>()
  readonly #folder = mkdtempSync(join(tmpdir(), 'lis-fake-'))
  readonly #secretsKey = randomBytes(32)
  readonly #accountId = newId(0)
  readonly #processes: Process[] = []
  #server!: LocalDatabase
  #database!: Database
  #receiver!: HttpsReceiver
  #smtp!: TestSmtpServer
  #tls!: Awaited<ReturnType<typeof createTestTls>>
  #contacts = 0

  constructor(library: string) {
    this.time = new FakeTime(library)
  }

  get knex() {
    return this.#database.knex
  }

  async open(): Promise<this> {
    this.#tls = await createTestTls()
    this.#smtp = await startSmtpServer()
    this.#receiver = await startHttpsReceiver(this.#tls, ({ path }) => ({
      status: this.healthy.has(path.slice(1)) ? 204 : 500,
    }))
    mkdirSync(join(this.#folder, 'logs'))
    this.#server = await this.time.around(() =>
      startLocalDatabase({ dataDir: this.#folder, redoLogMb: 32, bufferPoolMb: 64 }),
    )
    await migrate(this.#server.mysqlUrl, createLogger('migrate', 'warn'))
    this.#database = connectDatabase(this.#server.mysqlUrl)
    await this.clock.follow(this.#database.readTimeMs, () => {})
    await insertAccount(this.knex, {
      id: this.#accountId,
      name: 'Partner',
      mode: 'catch_all',
      timeZone: 'Asia/Kolkata',
      adminEmail: 'admin@lab.example.in',
      sandbox: false,
      createdAt: this.clock.now(),
    })
    return this
  }

  async close(): Promise<void> {
    for (const { child } of this.#processes) child.kill('SIGKILL')
    this.clock.stop()
    await this.#receiver?.close()
    await this.#smtp?.close()
    await this.#database?.close()
    await this.#server?.stop()
    this.#tls?.remove()
    this.time.remove()
    rmSync(this.#folder, { recursive: true, force: true })
  }

  /** @param time the clock that the process goes by; undefined: the machine's */
  async start(
    script: 'src/server.ts' | 'daemon/main.ts',
    time: FakeTime | undefined,
    env: Record<string, string> = {},
  ): Promise<Process> {
    const child = spawn(process.execPath, [script], {
      env: {
        PATH: process.env.PATH,
        NODE_ENV: 'test',
        MYSQL_URL: this.#server.mysqlUrl,
        SECRETS_KEY: this.#secretsKey.toString('base64'),
        DATA_DIR: this.#folder,
        PORT: '0',
        DAEMON_PORT: '0',
        SMTP_URL: this.#smtp.url,
        DELIVERY_CA_FILE: this.#tls.caFile,
        DELIVERY_ALLOW_CIDRS: '127.0.0.0/8',
        // A copy is given up soon, so that attempts are made only when an event is pushed.
        RETRY_SCHEDULE: '0.2',
        LOG_LEVEL: 'info',
        ...time?.env,
        ...env,
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    const lines: Process['lines'] = []
    createInterface({ input: child.stderr! }).on('line', (line) => {
      if (line.startsWith('{')) lines.push(JSON.parse(line))
    })
    const port = await new Promise<number>((resolve, reject) => {
      createInterface({ input: child.stdout! }).on('line', (line) => {
        const found = /^listening (\d+)$/.exec(line)
        if (found) resolve(Number(found[1]))
      })
      child.once('exit', (code) => reject(new Error(`${script} ended with ${code}`)))
    })
    const started = { name: script, lines, port, child }
    this.#processes.push(started)
    return started
  }

  async stop({ child }: Process): Promise<void> {
    const ended = once(child, 'exit')
    child.kill('SIGTERM')
    await ended
  }

  /** Moves the database's clock to that time, and waits until each process has said, once, that it saw it. */
  async jumpTo(timeMs: number, processes: Process[]): Promise<void> {
    const jumpMs = Math.round(timeMs - (await this.#database.readTimeMs()))
    const before = processes.map((process) => jumpsOf(process, 'database').length)
    this.time.set(this.time.offsetSeconds + jumpMs / 1000)
    for (const [n, process] of processes.entries()) {
      await expect.poll(() => jumpsOf(process, 'database').length, PATIENT).toBe(before[n]! + 1)
      expect(Math.abs(jumpsOf(process, 'database').at(-1)! - jumpMs)).toBeLessThan(5000)
    }
    const isThere = async () => Math.abs(this.clock.nowMs() - (await this.#database.readTimeMs())) < 500
    await expect.poll(isThere, PATIENT).toBe(true)
  }

  async webhook(api: Process, name: string): Promise<FakedWebhook> {
    const labId = newId(this.clock.nowMs())
    await insertLab(this.knex, {
      id: labId,
      accountId: this.#accountId,
      name: `Lab ${name}`,
      contact: '2025461234',
      adminEmail: null,
      active: true,
      createdAt: this.clock.now(),
    })
    const body = {
      labID: labId,
      events: ['lead.created'],
      endpoint: `${this.#receiver.url}/${name}`,
      protocol: 'https',
    }
    const answer = await this.#call(api, '/client/events/subscribe', body)
    return { id: answer.data._id, name, labId }
  }

  /** Pushes a lead for each through the API, and waits until both attempts of each are recorded. */
  async attempt(api: Process, webhooks: FakedWebhook[]): Promise<void> {
    const attemptOne = async (webhook: FakedWebhook) => {
      const before = await this.#countEnded(webhook)
      await this.push(api, webhook)
      await expect.poll(() => this.#countEnded(webhook), PATIENT).toBe(before + 1)
    }
    await Promise.all(webhooks.map(attemptOne))
  }

  /** Pushes a lead for it through the API. */
  async push(api: Process, webhook: FakedWebhook): Promise<void> {
    await this.#call(api, '/client/crm/lead/create', {
      branchID: webhook.labId,
      integratorID: webhook.name,
      first_name: 'Asha',
      contact: String(9_000_000_000 + this.#contacts++),
    })
  }

  async #countEnded({ id }: FakedWebhook): Promise<number> {
    return Number((await this.knex('deliveries').where({ webhook_id: id }).count({ n: '*' }).first())!.n)
  }

  async #call(api: Process, path: string, body: unknown): Promise<any> {
    const { token } = await createAccessTokens(deriveKeys(this.#secretsKey), this.clock, 600).issue(this.#accountId)
    const response = await fetch(`http://127.0.0.1:${api.port}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
    const answer = await response.json()
    if (response.status !== 200) throw new Error(`${path}: ${JSON.stringify([answer, ...api.lines.slice(-3)])}`)
    return answer
  }

  row({ id }: FakedWebhook) {
    return this.knex('webhooks').where({ id }).first()
  }

  /** What has reached the mailbox so far about a webhook, in order: `warning 2` is a warning after two failed attempts. */
  mailsOf({ name }: FakedWebhook): string[] {
    return this.#smtp.mails
      .map(({ raw }) => raw.replace(/=\r?\n/g, ''))
      .filter((raw) => raw.includes(`/${name}\r\n`))
      .map((raw) => {
        const kind = raw.includes('Subject: Webhook failing') ? 'warning' : 'deletion'
        return `${kind} ${/Failed attempts: (\d+)/.exec(raw)?.[1]}`
      })
  }

  /** Waits until no mail is left to be sent. */
  async mailsSent(): Promise<void> {
    const waiting = async () => (await this.knex('mails').whereNotNull('due_at')).length
    await expect.poll(waiting, PATIENT).toBe(0)
  }
}

/** In milliseconds, each jump of that clock which the process has logged. */
export function jumpsOf(process: Process, whose: 'database' | 'process'): number[] {
  return process.lines
    .filter(({ event, from }) => event === 'clock_jump' && from === whose)
    .map(({ jumpMs }) => jumpMs as number)
}
