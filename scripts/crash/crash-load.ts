/**
 * Clients that create leads in many accounts, and what became of every call. Nothing is tried again: each call that fails is
 * seen as one.
 */
import { monotonicMs } from '../../src/clock.ts'
import { newId } from '../../src/ids.ts'
import type { CrashArena, Tenant } from './crash-arena.ts'
import type { HookedReceiver } from './hooked-receiver.ts'
import type { Ledger } from './ledger.ts'
import { call, leadBody, newAgent } from './lead-client.ts'

export interface LoadOptions {
  arena: CrashArena
  receiver: HookedReceiver
  ledger: Ledger
  /** Calls a second, by all clients. */
  rate: number
  /** The process that the next call goes to; undefined: none is there. */
  target: () => { url: string; pid: number } | undefined
  /** Taking turns; as many as the limit of each needs where left out. */
  accounts?: number
  /** Further fields of each lead. */
  extra?: Record<string, string>
}

const CLIENTS = 24
/** Half the limit of a minute, for each account: what a busy machine was late with comes in a burst. */
const CALLS_OF_ACCOUNT = 30
const WEBHOOKS_OF_ACCOUNT = 2
/** Of so many calls one opens a connection of its own. */
const FRESH_EACH = 4

export class CrashLoad {
  readonly #options: LoadOptions
  readonly #tenants: Tenant[]
  readonly #agent = newAgent()
  #clients: Promise<void>[] = []
  #running = false
  #calls = 0

  private constructor(options: LoadOptions, tenants: Tenant[]) {
    this.#options = options
    this.#tenants = tenants
  }

  static async prepare(options: LoadOptions): Promise<CrashLoad> {
    const { arena, receiver, ledger, rate, accounts = Math.ceil((rate * 60) / CALLS_OF_ACCOUNT) + 5 } = options
    const tenants: Tenant[] = []
    for (let n = 0; n < accounts; n++) {
      const tenant = await arena.addTenant()
      tenants.push(tenant)
      for (let m = 0; m < WEBHOOKS_OF_ACCOUNT; m++) {
        const webhook = await arena.addWebhook(tenant, receiver.urlOf)
        ledger.append('webhooks', { webhook, lab: tenant.lab })
      }
    }
    return new CrashLoad(options, tenants)
  }

  start(): void {
    this.#running = true
    const gapMs = (CLIENTS / this.#options.rate) * 1000
    this.#clients = Array.from({ length: CLIENTS }, (_, n) => this.#client((n / CLIENTS) * gapMs, gapMs))
  }

  /** Resolves when every call that was made has ended. */
  async stop(): Promise<void> {
    this.#running = false
    await Promise.all(this.#clients)
    this.#agent.destroy()
  }

  /** On a fixed schedule: a slow answer does not thin the load out. */
  async #client(delayMs: number, gapMs: number): Promise<void> {
    for (let atMs = monotonicMs() + delayMs; this.#running; atMs += gapMs) {
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, atMs - monotonicMs())))
      if (this.#running) await this.#call()
    }
  }

  async #call(): Promise<void> {
    const { arena, ledger, target, extra } = this.#options
    const aim = target()
    if (!aim) return
    const n = this.#calls++
    const tenant = this.#tenants[n % this.#tenants.length]!
    const request = newId(arena.clock.nowMs())
    const sentAtMs = monotonicMs()
    const url = `${aim.url}/client/crm/lead/create`
    const { status, body } = await call(n % FRESH_EACH === 0 ? undefined : this.#agent, 'POST', url, tenant, {
      ...leadBody(tenant, request),
      ...extra,
    })
    ledger.append('client', {
      request,
      account: tenant.account,
      pid: aim.pid,
      sentAtMs,
      endedAtMs: monotonicMs(),
      status,
      leadId: status === 200 ? body.leadId : null,
    })
  }
}

/** What the database holds at the end, for the check. */
export async function writeEvents({ database }: CrashArena, ledger: Ledger): Promise<void> {
  const rows = await database.knex('events').select('id', 'subject_id', 'lab_id')
  for (const row of rows) ledger.append('events', { event: row.id, lead: row.subject_id, lab: row.lab_id })
}
