/**
 * Three API processes on one database, and accounts that call them. Every race has accounts of its own, so that the limit of 60
 * CRM calls a minute is met only where it is meant to be.
 */
import { Agent } from 'node:http'
import type { Knex } from 'knex'
import { insertOperatorKey } from '../../src/auth/operator-keys-repository.ts'
import { hashSecret, newSecret } from '../../src/crypto.ts'
import { newId } from '../../src/ids.ts'
import { addTenants, insertRows, type Tenant, type TenantOptions } from '../bench/tenants.ts'
import { TOKEN_SECONDS, type CrashArena, type CrashProcess } from '../crash/crash-arena.ts'
import type { FakeTime } from '../crash/fake-time.ts'
import { call, type Answer } from '../crash/lead-client.ts'
import { alone, type RaceCall } from './at-once.ts'
import type { Tally } from './tally.ts'

export const PROCESSES = 3

export interface RaceOptions {
  rounds: number
  /** Of the races that last a time. */
  minutes: number
  random: () => number
  say: (line: string) => void
}

export interface Race {
  /** As `--only` names it. */
  id: string
  title: string
  run(world: RaceWorld, options: RaceOptions): Promise<Tally>
}

let contacts = 7_000_000_000

/** Ten digits that no other call gets. */
export function newContact(): string {
  return String(++contacts)
}

export class RaceWorld {
  readonly arena: CrashArena
  /** Of the database's server, where that is ours. */
  readonly clock: FakeTime | undefined
  /** One that was killed is undefined until its successor serves. */
  readonly apis: (CrashProcess | undefined)[] = []
  /** For all accounts. */
  readonly operatorKey: string
  readonly folder: string
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 64 })
  #turn = 0

  private constructor(arena: CrashArena, folder: string, operatorKey: string, clock?: FakeTime) {
    this.arena = arena
    this.folder = folder
    this.operatorKey = operatorKey
    this.clock = clock
  }

  /** @param folder the arena's data folder */
  static async open(arena: CrashArena, folder: string, clock?: FakeTime): Promise<RaceWorld> {
    const key = newSecret()
    const createdAt = arena.clock.now()
    const id = newId(createdAt.getTime())
    await insertOperatorKey(arena.database.knex, { id, keyHash: hashSecret(key), name: 'races', role: 'admin', accountId: null, createdAt }) // prettier-ignore
    const world = new RaceWorld(arena, folder, key, clock)
    world.apis.push(...(await Promise.all(Array.from({ length: PROCESSES }, () => arena.startApi()))))
    return world
  }

  close(): void {
    this.#agent.destroy()
  }

  get knex(): Knex {
    return this.arena.database.knex
  }

  /** The n-th in turn of those that serve. */
  url(n: number): string {
    const alive = this.apis.filter((api) => api !== undefined)
    return alive[n % alive.length]!.url
  }

  /** SIGKILL, and a successor. */
  async killOne(n: number): Promise<void> {
    const place = n % this.apis.length
    const killed = this.apis[place]
    if (!killed) return
    this.apis[place] = undefined
    killed.kill()
    await killed.service.ended
    this.apis[place] = await this.arena.startApi()
  }

  addTenants(count: number, options: TenantOptions = {}): Promise<Tenant[]> {
    return addTenants(this.arena, count, { tokenSeconds: TOKEN_SECONDS, ...options })
  }

  /** @returns their ids */
  async addLabs(accountId: string, count: number): Promise<string[]> {
    const now = this.arena.clock.now()
    const ids = Array.from({ length: count }, () => newId(now.getTime()))
    const rows = ids.map((id, n) => [id, accountId, `Further lab ${n}`, '2025461234', now])
    await insertRows(this.arena.database, 'labs', ['id', 'account_id', 'name', 'contact', 'created_at'], rows)
    return ids
  }

  /** By itself, over a connection of its own, to the processes in turn. */
  alone(asked: Omit<RaceCall, 'url'>): Promise<Answer> {
    return alone({ ...asked, url: this.url(this.#turn++) })
  }

  /** Over connections that are kept. */
  call(method: string, path: string, token: string, body?: object): Promise<Answer> {
    return call(this.#agent, method, this.url(this.#turn++) + path, { token }, body)
  }

  async count(table: string, where: Record<string, unknown>): Promise<number> {
    const [row] = await this.knex(table).where(where).count({ n: '*' })
    return Number(row!.n)
  }
}
