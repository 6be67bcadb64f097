/**
 * One service for crashing: a database of its own, accounts and webhooks in it, and API and daemon processes each behind a
 * proxy of its own.
 */
import { randomBytes } from 'node:crypto'
import { mkdirSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { sendThrough } from '../../db/batch.ts'
import { connectDatabase, type Database } from '../../db/connection.ts'
import { createAccessTokens, type AccessTokens } from '../../src/auth/access-token.ts'
import { DatabaseClock, monotonicMs } from '../../src/clock.ts'
import { deriveKeys, seal } from '../../src/crypto.ts'
import { makeLaneDue } from '../../src/deliveries/lanes-repository.ts'
import { routeTheseEvents } from '../../src/events/event-routing.ts'
import type { EventType } from '../../src/events/event-types.ts'
import { recordEvent } from '../../src/events/events-repository.ts'
import { newId, publicEventId } from '../../src/ids.ts'
import { insertWebhook } from '../../src/webhooks/webhooks-repository.ts'
import type { DevTls } from '../dev-tls.ts'
import { startService, type Service } from '../service-process.ts'
import { startDatabaseProxy, type DatabaseProxy } from './database-proxy.ts'

const ROOT = join(import.meta.dirname, '..', '..')
/** Longer than any run, also where the clock is set ahead: a token that expires would be a failure of the bench. */
export const TOKEN_SECONDS = 1000 * 86_400

export interface Tenant {
  account: string
  lab: string
  token: string
}

export interface CrashProcess {
  service: Service
  /** Where it listens. */
  url: string
  proxy: DatabaseProxy
  /** SIGKILL, at once. */
  kill(): void
  /** SIGTERM. */
  stop(): Promise<void>
  /** @returns whether it was still there */
  signal(name: NodeJS.Signals): boolean
}

export class CrashArena {
  readonly database: Database
  readonly clock = new DatabaseClock()
  readonly mysqlUrl: string
  readonly #folder: string
  readonly #tls: DevTls
  readonly #secretsKey = randomBytes(32)
  readonly keys = deriveKeys(this.#secretsKey)
  readonly #tokens: AccessTokens
  readonly #processes = new Set<CrashProcess>()
  #started = 0

  private constructor(mysqlUrl: string, folder: string, tls: DevTls) {
    this.mysqlUrl = mysqlUrl
    this.#folder = folder
    this.#tls = tls
    this.database = connectDatabase(mysqlUrl)
    this.#tokens = createAccessTokens(this.keys, this.clock, TOKEN_SECONDS)
  }

  /** @param mysqlUrl of a database with the current schema */
  static async open(mysqlUrl: string, folder: string, tls: DevTls): Promise<CrashArena> {
    mkdirSync(join(folder, 'logs'), { recursive: true })
    const arena = new CrashArena(mysqlUrl, folder, tls)
    await arena.clock.follow(arena.database.readTimeMs, () => {})
    return arena
  }

  async close(): Promise<void> {
    this.clock.stop()
    for (const process of this.#processes) process.kill()
    await Promise.all([...this.#processes].map(({ service }) => service.ended))
    await this.database.close()
  }

  async addTenant(): Promise<Tenant> {
    const createdAt = this.clock.now()
    const account = newId(createdAt.getTime())
    const lab = newId(createdAt.getTime())
    const { knex } = this.database
    await knex('accounts').insert({
      id: account,
      name: 'Partner',
      mode: 'catch_all',
      time_zone: 'Asia/Kolkata',
      admin_email: 'admin@lab.example.in',
      created_at: createdAt,
    })
    await knex('labs').insert({
      id: lab,
      account_id: account,
      name: 'Lab',
      contact: '2025461234',
      created_at: createdAt,
    })
    return { account, lab, token: (await this.#tokens.issue(account)).token }
  }

  /** @param urlOf the endpoint, from the webhook's id. @returns the webhook's id */
  async addWebhook(
    { account, lab }: Pick<Tenant, 'account' | 'lab'>,
    urlOf: (webhook: string) => string,
    events: EventType[] = ['lead.created'],
  ): Promise<string> {
    const now = this.clock.now()
    const id = newId(now.getTime())
    const webhook = {
      id,
      accountId: account,
      labId: lab,
      corporateId: null,
      organizationId: null,
      endpoint: urlOf(id),
      events,
      createdAt: now,
      updatedAt: now,
    }
    await this.database.knex.transaction((trx) => insertWebhook(trx, webhook, seal(this.keys, randomBytes(32), id)))
    return id
  }

  /** Records an event as the API does, without one. @returns its id */
  /** @param routedTo in the same transaction the event is fanned out, so that no daemon does */
  async addEvent({ account, lab }: Pick<Tenant, 'account' | 'lab'>, routedTo?: string): Promise<string> {
    const id = newId(this.clock.nowMs())
    const body = Buffer.from(JSON.stringify({ id: publicEventId(id), pad: 'x'.repeat(500) }))
    const parties = { corporateId: null, doctorId: null, hospitalId: null }
    await this.database.transaction(async (trx) => {
      await recordEvent(trx, {
        id,
        accountId: account,
        labId: lab,
        type: 'lead.created',
        subjectId: id,
        ...parties,
        body,
      })
      if (routedTo === undefined) return
      await routeTheseEvents(sendThrough(trx), [{ eventId: id, isMessage: false }], this.clock.now())
      await makeLaneDue(trx, routedTo, this.clock.now())
    })
    return id
  }

  startApi(env: Record<string, string> = {}): Promise<CrashProcess> {
    return this.#start('the API', 'src/server.ts', env)
  }

  startDaemon(env: Record<string, string> = {}): Promise<CrashProcess> {
    return this.#start('the daemon', 'daemon/main.ts', env)
  }

  async #start(name: string, script: string, env: Record<string, string>): Promise<CrashProcess> {
    const proxy = await startDatabaseProxy(this.mysqlUrl)
    const all = {
      ...process.env,
      NODE_ENV: 'test',
      MYSQL_URL: proxy.mysqlUrl,
      MYSQL_DAEMON_URL: proxy.mysqlUrl,
      MONGODB_URL: '',
      OPERATOR_PORT: '',
      METRICS_PORT: '',
      SMTP_URL: '',
      DATA_DIR: this.#folder,
      SECRETS_KEY: this.#secretsKey.toString('base64'),
      PORT: '0',
      DAEMON_PORT: '0',
      DELIVERY_CA_FILE: this.#tls.caFile,
      LOG_LEVEL: 'info',
      // Hundreds of starts: compiled once. Node's own place for it.
      NODE_COMPILE_CACHE: join(tmpdir(), 'node-compile-cache'),
      ...env,
    }
    const log = join(this.#folder, 'logs', `${name.slice(4)}-${++this.#started}.log`)
    const service = startService(name, join(ROOT, script), all, log)
    const running: CrashProcess = {
      service,
      url: '',
      proxy,
      kill: () => void signal(service.pid, 'SIGKILL'),
      signal: (name) => signal(service.pid, name),
      stop: async () => {
        await service.stop()
      },
    }
    this.#processes.add(running)
    void service.ended.then(() => {
      this.#processes.delete(running)
      proxy.close()
    })
    running.url = `http://127.0.0.1:${await service.listening()}`
    return running
  }
}

function signal(pid: number, name: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, name)
  } catch {
    // It is gone already.
    return false
  }
}

/** Waits for a condition, looking at it often. @throws when it does not come true in time */
export async function until(what: string, holds: () => Promise<boolean> | boolean, timeoutMs = 30_000): Promise<void> {
  const endMs = monotonicMs() + timeoutMs
  while (!(await holds())) {
    if (monotonicMs() > endMs) throw new Error(`${what}: not within ${timeoutMs / 1000} s`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

/** Whether nothing waits any more, neither for its fan-out nor in the queue. */
export async function isDry({ knex }: Database): Promise<boolean> {
  const [[row]] = await knex.raw(
    'SELECT (SELECT COUNT(*) FROM unrouted_events) + (SELECT COUNT(*) FROM delivery_queue) AS n',
  )
  return Number(row.n) === 0
}

/** The same for the queue of one webhook. */
export async function isWebhookDry({ knex }: Database, webhook: string): Promise<boolean> {
  // In the order in which an event goes: the other way round one that is fanned out between the two looks would be seen by neither.
  if (await knex('unrouted_events').first('event_id')) return false
  return (await knex('delivery_queue').where({ webhook_id: webhook }).first('event_id')) === undefined
}
