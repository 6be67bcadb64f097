/**
 * The real parts that a benchmark runs on: a MariaDB of its own with the durable settings of `make run`, a receiver and
 * daemons as processes of their own, and a backlog written with batched inserts.
 */
import { fork, spawn, type ChildProcess } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { COMMIT } from '../../db/batch.ts'
import { connectDatabase, type Database } from '../../db/connection.ts'
import { migrate } from '../../db/migrate.ts'
import { DatabaseClock, processClock } from '../../src/clock.ts'
import { deriveKeys, seal } from '../../src/crypto.ts'
import { newId } from '../../src/ids.ts'
import { createLogger } from '../../src/logger.ts'
import { claimWebhook, insertWebhook, recordDeletion } from '../../src/webhooks/webhooks-repository.ts'
import { makeSureOfDevTls, type CertificateName, type DevTls } from '../dev-tls.ts'
import { startLocalDatabase, type LocalDatabase } from '../local-database.ts'
import { onInterrupt, spawnTied } from '../processes.ts'
import { nodeArgumentsOf, SERVICE_ENV } from '../service-process.ts'
import { addCopies } from './copies.ts'
import { BODY_BYTES } from './sizes.ts'

const ROWS_A_STATEMENT = 1000
export const TOKEN_TTL_SECONDS = 86_400

export interface Counts {
  receipts: number
  doubled: number
  firstAtMs: number
  lastAtMs: number
  /** Of `/busy/…`. */
  busyReceipts: number
  lastBusyAtMs: number
  delays: number[]
}

export class BenchWorld {
  readonly database: Database
  readonly tls: DevTls
  readonly clock = new DatabaseClock()
  readonly receiverPort: number
  /** A control: the receiver forgets its first receipt, and every row that counts them must fail. */
  forgets = false
  /** What a row has made ready for its further runs. */
  readonly isPrepared = new Set<string>()
  readonly folder: string
  readonly #server: LocalDatabase
  readonly #receiver: ChildProcess
  readonly #secretsKey = randomBytes(32)
  readonly keys = deriveKeys(this.#secretsKey)
  readonly labId = newId(1)
  readonly accountId = newId(2)

  readonly #profileDir: string | undefined
  /** APIs and daemons that have not ended. */
  readonly #running = new Set<ChildProcess>()
  #onClosed = () => {}
  #closing: Promise<void> | undefined

  private constructor(
    folder: string,
    server: LocalDatabase,
    tls: DevTls,
    receiver: ChildProcess,
    port: number,
    profileDir?: string,
  ) {
    this.#profileDir = profileDir
    this.folder = folder
    this.#server = server
    this.tls = tls
    this.#receiver = receiver
    this.receiverPort = port
    this.database = connectDatabase(server.mysqlUrl)
  }

  /**
   * @param profileDir where each daemon leaves a CPU profile
   * @param alsoFor further names that the endpoints' certificate is good for
   */
  static async open(profileDir?: string, alsoFor: CertificateName[] = []): Promise<BenchWorld> {
    const folder = mkdtempSync(join(tmpdir(), 'lis-bench-'))
    const server = await startLocalDatabase({ dataDir: folder, redoLogMb: 512, bufferPoolMb: 1024 })
    let world: BenchWorld | undefined
    const ended = onInterrupt(() => world?.close() ?? endServer(server, folder))
    await migrate(server.mysqlUrl, createLogger('migrate', 'warn'))
    const tls = await makeSureOfDevTls(folder, processClock.nowMs(), alsoFor)
    const receiver = fork(join(import.meta.dirname, 'receiver-process.ts'), [tls.certificateFile, tls.keyFile])
    const [{ port }] = (await once(receiver, 'message')) as [{ port: number }]
    world = new BenchWorld(folder, server, tls, receiver, port, profileDir)
    world.#onClosed = ended
    await world.clock.follow(world.database.readTimeMs, () => {})
    return world
  }

  close(): Promise<void> {
    return (this.#closing ??= this.#close())
  }

  async #close(): Promise<void> {
    for (const child of this.#running) child.kill('SIGKILL')
    this.clock.stop()
    this.#receiver.kill('SIGKILL')
    await this.database.close()
    await endServer(this.#server, this.folder)
    this.#onClosed()
  }

  /** @param delays also those, which are many */
  async counts(delays = false): Promise<Counts> {
    const answer = once(this.#receiver, 'message')
    this.#receiver.send({ count: true, ...(delays ? { delays } : {}) })
    return ((await answer) as [{ counts: Counts }])[0].counts
  }

  /** Resolves when it counts from 0. */
  async resetReceiver(forget = this.forgets): Promise<void> {
    this.#receiver.send({ reset: true, forget })
    await this.counts()
  }

  get receiverPid(): number {
    return this.#receiver.pid!
  }

  get databasePid(): number {
    return this.#server.pid
  }

  get mysqlUrl(): string {
    return this.#server.mysqlUrl
  }

  url(path: string): string {
    return `https://127.0.0.1:${this.receiverPort}/${path}`
  }

  /** Everything of an earlier row goes. */
  async clear(): Promise<void> {
    for (const table of ['delivery_queue', 'deliveries', 'earlier_attempts', 'events', 'event_bodies', 'unrouted_events', 'lanes', 'webhooks', 'webhook_events', 'webhook_secrets', 'daemons']) {
      await this.database.knex.raw('TRUNCATE TABLE ??', [table])
    } // prettier-ignore
    await this.resetReceiver(false)
  }

  /** @param labIds one for each, and their accounts; all of one lab where left out */
  async addWebhooks(endpoints: string[], labIds?: string[], accountIds?: string[]): Promise<string[]> {
    const now = this.clock.now()
    const ids = endpoints.map(() => newId(now.getTime()))
    await this.database.knex.transaction(async (trx) => {
      for (const [n, endpoint] of endpoints.entries()) {
        const id = ids[n]!
        const webhook = {
          id,
          accountId: accountIds?.[n] ?? this.accountId,
          labId: labIds?.[n] ?? this.labId,
          corporateId: null,
          organizationId: null,
          endpoint,
          events: ['lead.created' as const],
          createdAt: now,
          updatedAt: now,
        }
        await insertWebhook(trx, webhook, seal(this.keys, randomBytes(32), id))
      }
    })
    return ids
  }

  /**
   * Events as the API records them; `unrouted`: they wait for their fan-out.
   * @param atMs the time in the body, from which the receiver measures; now where left out
   */
  async addEvents(count: number, unrouted: boolean, labId = this.labId, atMs?: number): Promise<string[]> {
    const ids = Array.from({ length: count }, () => newId(this.clock.nowMs()))
    for (let from = 0; from < count; from += ROWS_A_STATEMENT) {
      const part = ids.slice(from, from + ROWS_A_STATEMENT)
      const recordedAtMs = atMs ?? performance.timeOrigin + performance.now()
      const body = Buffer.from(
        JSON.stringify({ recordedAtMs, pad: '' }).replace('""', `"${'x'.repeat(BODY_BYTES - 50)}"`),
      )
      await this.database.batch.transaction((send) =>
        send([
          {
            sql: `INSERT INTO events (id, account_id, lab_id, type, recorded_at, subject_id) VALUES ${part.map(() => "(?, ?, ?, 'lead.created', UTC_TIMESTAMP(6), ?)").join(',')}`,
            values: part.flatMap((id) => [id, this.accountId, labId, id]),
          },
          { sql: 'INSERT INTO event_bodies (event_id, body) VALUES ?', values: [part.map((id) => [id, body])] },
          ...(unrouted
            ? [{ sql: 'INSERT INTO unrouted_events (event_id) VALUES ?', values: [part.map((id) => [id])] }]
            : []),
          COMMIT,
        ]),
      )
    }
    return ids
  }

  /** A fanned-out backlog: each event for one webhook, taking turns. No lane is due for it yet. */
  async addBacklog(webhookIds: string[], eventIds: string[]): Promise<void> {
    const dueAt = this.clock.now()
    for (let from = 0; from < eventIds.length; from += ROWS_A_STATEMENT) {
      const rows = eventIds
        .slice(from, from + ROWS_A_STATEMENT)
        .map((eventId, n) => [webhookIds[(from + n) % webhookIds.length], dueAt, eventId, 0, 1])
      await this.database.batch.transaction((send) =>
        send([
          {
            sql: 'INSERT INTO delivery_queue (webhook_id, due_at, event_id, attempts, epoch) VALUES ?',
            values: [rows],
          },
          COMMIT,
        ]),
      )
    }
  }

  /** So many due copies of one webhook, written by the server itself; their bodies are as small as can be. */
  async addWaitingCopies(webhookId: string, copies: number): Promise<void> {
    await addCopies(this, [webhookId], copies, '{}')
  }

  /** In the transaction in which the API does it. */
  async deleteWebhook(webhookId: string): Promise<void> {
    await this.database.transaction(async (trx) => {
      const claimed = await claimWebhook(trx, this.accountId, this.labId, webhookId, 'whole_lab')
      if (!claimed) throw new Error('no such webhook')
      await recordDeletion(trx, webhookId, this.clock.now())
    })
  }

  async makeDue(webhookIds: string[]): Promise<void> {
    await this.database.knex('lanes').whereIn('webhook_id', webhookIds).update({ due_at: this.clock.now() })
  }

  async startDaemon(env: Record<string, string> = {}): Promise<ChildProcess> {
    return (await this.#start('daemon/main.ts', env)).child
  }

  /** @returns with its port */
  async startApi(env: Record<string, string> = {}): Promise<{ child: ChildProcess; port: number }> {
    return this.#start('src/server.ts', { ACCESS_TOKEN_TTL_SECONDS: String(TOKEN_TTL_SECONDS), ...env })
  }

  async #start(script: string, env: Record<string, string>): Promise<{ child: ChildProcess; port: number }> {
    const profile = this.#profileDir ? ['--cpu-prof', `--cpu-prof-dir=${this.#profileDir}`] : []
    const child = spawnTied(process.execPath, [...nodeArgumentsOf(script), ...profile, script], {
      env: {
        ...SERVICE_ENV,
        ...process.env,
        NODE_ENV: 'development',
        MYSQL_URL: this.#server.mysqlUrl,
        DATA_DIR: this.folder,
        SECRETS_KEY: this.#secretsKey.toString('base64'),
        PORT: '0',
        DAEMON_PORT: '0',
        DELIVERY_CA_FILE: this.tls.caFile,
        LOG_LEVEL: 'warn',
        ...env,
      },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    this.#running.add(child)
    child.once('exit', () => this.#running.delete(child))
    const port = await new Promise<number>((resolve, reject) => {
      child.stdout!.once('data', (text: Buffer) => resolve(Number(/\d+/.exec(String(text))?.[0])))
      child.once('exit', (code) => reject(new Error(`${script} ended with ${code}`)))
    })
    return { child, port }
  }

  /** Also of an API. @throws when it ended before */
  async stopDaemon(child: ChildProcess): Promise<void> {
    if (child.exitCode !== null || child.signalCode !== null) throw new Error('a process ended by itself')
    const ended = once(child, 'exit')
    child.kill('SIGTERM')
    await ended
  }

  /** Requests per second that plain `request` reaches with that many in flight. */
  async rawRate(requests: number, inFlight: number, warmUp: number): Promise<{ rate: number; cpuUs: number }> {
    const args = [
      join(import.meta.dirname, 'raw-process.ts'),
      this.url('ok/raw'),
      this.tls.caFile,
      String(requests),
      String(inFlight),
      String(warmUp),
    ]
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] })
    const [output] = await once(child.stdout!, 'data')
    return JSON.parse(String(output))
  }
}

async function endServer(server: LocalDatabase, folder: string): Promise<void> {
  await server.stop()
  rmSync(folder, { recursive: true, force: true })
}

/** CPU seconds that a process has used so far. */
export async function cpuSeconds(pid: number): Promise<number> {
  const { readFile } = await import('node:fs/promises')
  const fields = (await readFile(`/proc/${pid}/stat`, 'utf8')).split(') ')[1]!.split(' ')
  const TICKS_A_SECOND = 100
  return (Number(fields[11]) + Number(fields[12])) / TICKS_A_SECOND
}
