/**
 * The calls of a soak. Each knows how it must be answered; whatever else comes is written down as unplanned.
 */
import { monotonicMs } from '../../src/clock.ts'
import { newId } from '../../src/ids.ts'
import type { CrashArena } from '../crash/crash-arena.ts'
import type { HookedReceiver } from '../crash/hooked-receiver.ts'
import { call, leadBody, newAgent, type Answer } from '../crash/lead-client.ts'
import type { ClientLine, Ledger } from '../crash/ledger.ts'
import { PatientLogins } from './patient-logins.ts'
import { LEAD_SOURCE, type SoakAccount, type SoakWorld } from './soak-accounts.ts'
import type { SmsSink } from './sms-sink.ts'
import { WebhookCare } from './webhook-care.ts'

/** What is called, in the words of the report. `bill`: the lab's own side. */
export type CallKind = 'lead' | 'list' | 'preBooking' | 'patient' | 'webhook' | 'token' | 'bill'

export interface UnplannedCall {
  what: string
  status: number | null
  details: string
  pid: number
  sentAtMs: number
  endedAtMs: number
}

export interface CallsOptions {
  arena: CrashArena
  receiver: HookedReceiver
  ledger: Ledger
  world: SoakWorld
  sms: SmsSink
  target: () => { url: string; pid: number } | undefined
}

export interface Asked {
  /** For the report: "subscribe". */
  what: string
  kind: CallKind
  /** When it should leave: a call that has to wait is the slower for it. */
  dueAtMs: number
  method: string
  path: string
  account: { token?: string }
  body?: object
  headers?: Record<string, string>
  /** The statuses that it may be answered with. */
  planned: number[]
  /** Whether a body of a planned status says what it should. */
  holds?: (body: Answer['body']) => boolean
}

/** One of so many is not as it should be, and must be refused. */
const FAULTY_LEAD_EACH = 20
const USED_BARCODE_EACH = 20
const TOO_MANY = 429

export class SoakCalls {
  /** From when each should have left to its answer, in ms. */
  readonly delays: Record<CallKind, number[]> = {
    lead: [],
    list: [],
    preBooking: [],
    patient: [],
    webhook: [],
    token: [],
    bill: [],
  }
  /** By status; 0: the connection broke. */
  readonly statuses = new Map<number, number>()
  /** Also what was not written by another way. */
  readonly unplanned: UnplannedCall[] = []
  /** Of what has an event: who was asked, and what was answered. */
  readonly clients: ClientLine[] = []
  /** While more is sent than an account may: the limit is an answer that was to be expected. */
  isBurst = false
  readonly #options: CallsOptions
  readonly #agent = newAgent()
  readonly #logins: PatientLogins
  readonly #care: WebhookCare
  readonly #etags = new Map<string, string>()
  #lastLead: { account: SoakAccount; contact: string } | undefined
  #lastBarcode: string | undefined
  readonly #turns = new Map<CallKind, number>()

  constructor(options: CallsOptions) {
    this.#options = options
    this.#logins = new PatientLogins(options.world, options.sms, (asked) => this.ask(asked))
    this.#care = new WebhookCare(options, (asked) => this.ask(asked))
  }

  /** Forgets how long everything has taken so far. */
  startTiming(): void {
    for (const values of Object.values(this.delays)) values.length = 0
  }

  close(): void {
    this.#agent.destroy()
  }

  /** Webhooks that had been deleted because their endpoint failed, and were brought back. */
  get reactivated(): number {
    return this.#care.reactivated
  }

  /** Resolves when the call, and what belongs to it, has been answered. */
  async make(kind: Exclude<CallKind, 'bill'>, dueAtMs: number): Promise<void> {
    const n = this.#turns.get(kind) ?? 0
    this.#turns.set(kind, n + 1)
    const { accounts } = this.#options.world
    const account = accounts[n % accounts.length]!
    const makers: Record<typeof kind, () => Promise<unknown>> = {
      lead: () => this.#lead(account, n, dueAtMs),
      list: () => this.#list(n, dueAtMs),
      preBooking: () => this.#preBooking(account, n, dueAtMs),
      patient: () => this.#logins.step(dueAtMs),
      webhook: () => this.#care.step(account, n, dueAtMs),
      token: () => this.#token(account, n, dueAtMs),
    }
    await makers[kind]()
  }

  /** @returns undefined where nobody could be asked */
  async ask(asked: Asked): Promise<(Answer & { isPlanned: boolean; pid: number }) | undefined> {
    const aim = this.#options.target()
    if (!aim) return undefined
    const { method, path, account, body, headers, planned, kind, what, dueAtMs, holds = () => true } = asked
    const sentAtMs = monotonicMs()
    const answer = await call(this.#agent, method, aim.url + path, account, body, headers)
    const endedAtMs = monotonicMs()
    const { status } = answer
    this.delays[kind].push(endedAtMs - dueAtMs)
    this.statuses.set(status ?? 0, (this.statuses.get(status ?? 0) ?? 0) + 1)
    const isFull = this.isBurst && status === TOO_MANY
    const isPlanned = isFull || (planned.includes(status ?? 0) && holds(answer.body))
    if (!isPlanned) {
      const details = answer.body.error?.details ?? ''
      this.unplanned.push({ what, status, details, pid: aim.pid, sentAtMs, endedAtMs })
    }
    return { ...answer, isPlanned, pid: aim.pid }
  }

  /** The same for what has an event. @param idOf of what was made */
  async #commit(asked: Asked, request: string, account: SoakAccount, idOf: (body: Answer['body']) => string) {
    const sentAtMs = monotonicMs()
    const answer = await this.ask(asked)
    if (!answer) return undefined
    const { status, body, pid } = answer
    const isMade = status === 200 || status === 201
    const endedAtMs = monotonicMs()
    const line = { request, account: account.account, pid, sentAtMs, endedAtMs, status, leadId: isMade ? idOf(body) : null } // prettier-ignore
    this.#options.ledger.append('client', line)
    this.clients.push(line)
    return isMade
  }

  async #lead(account: SoakAccount, n: number, dueAtMs: number): Promise<void> {
    if (n % FAULTY_LEAD_EACH === FAULTY_LEAD_EACH - 1) return this.#refusedLead(account, n, { ...CREATE, dueAtMs })
    await this.lead(account, n, dueAtMs)
  }

  /** @returns whether it was taken */
  async lead(account: SoakAccount, n: number, dueAtMs: number): Promise<boolean> {
    const request = newId(this.#options.arena.clock.nowMs())
    const lead = leadBody(account, request)
    const body = { ...lead, ...detailsOf(account, n), ...(n % 3 === 0 ? BOOKING : {}) }
    const asked = { ...CREATE, dueAtMs, what: 'lead/create', account, body, planned: [200] }
    const isMade = await this.#commit(asked, request, account, ({ leadId }) => leadId)
    if (isMade) this.#lastLead = { account, contact: lead.contact! }
    return isMade ?? false
  }

  /** A contact of today, a missing name, another account's branch. */
  async #refusedLead(account: SoakAccount, n: number, base: Pick<Asked, 'kind' | 'dueAtMs' | 'method' | 'path'>) {
    const known = this.#lastLead
    const turn = Math.floor(n / FAULTY_LEAD_EACH) % 3
    const body = leadBody(account, 'refused')
    if (turn === 0 && known) {
      const again = { ...leadBody(known.account, 'refused'), contact: known.contact }
      await this.ask({ ...base, what: 'lead twice a day', account: known.account, body: again, planned: [409] })
    } else if (turn === 1) {
      await this.ask({ ...base, what: 'nameless lead', account, body: { ...body, first_name: undefined }, planned: [400] }) // prettier-ignore
    } else {
      const foreign = this.#options.world.accounts.find((other) => other !== account)!.lab
      await this.ask({ ...base, what: 'foreign branch', account, body: { ...body, branchID: foreign }, planned: [403] })
    }
  }

  /** Each twice in a row, the second time with what the first one has brought. */
  async #list(n: number, dueAtMs: number): Promise<void> {
    const { accounts } = this.#options.world
    const turn = Math.floor(n / 2)
    const account = accounts[turn % accounts.length]!
    const query = `?branchID=${account.lab}`
    const lists = ['/client/labs', `/client/crm/tests${query}`, `/client/crm/packages${query}`]
    const path = lists[(turn + Math.floor(turn / accounts.length)) % lists.length]!
    const key = `${account.account} ${path}`
    const etag = n % 2 === 1 ? this.#etags.get(key) : undefined
    const headers: Record<string, string> = etag === undefined ? {} : { 'if-none-match': etag }
    const planned = etag === undefined ? [200] : [304]
    const holds = (body: Answer['body']) => (body.branches ?? body.tests ?? body.packages ?? []).length > 0
    const asked = { what: 'list', kind: 'list' as const, dueAtMs, method: 'GET', path, account, headers, planned }
    const answer = await this.ask({ ...asked, ...(etag === undefined ? { holds } : {}) })
    if (answer?.status === 200 && answer.headers.etag) this.#etags.set(key, answer.headers.etag)
  }

  async #preBooking(account: SoakAccount, n: number, dueAtMs: number): Promise<void> {
    const used = n % USED_BARCODE_EACH === USED_BARCODE_EACH - 1 ? this.#lastBarcode : undefined
    const barCode = used ?? newId(this.#options.arena.clock.nowMs())
    const body = {
      labID: account.lab,
      patient_details: { first_name: 'Asha', last_name: 'Rao', gender: 'female', age: 41, age_type: 'year' },
      integrator_id: `P-${n}`,
      lead_source: LEAD_SOURCE,
      mapped_tests: [{ id: account.tests[n % account.tests.length] }],
      unmapped_tests: ['Vitamin D'],
      barCode,
    }
    const answer = await this.ask({
      what: used ? 'used barcode' : 'billing/create',
      kind: 'preBooking',
      dueAtMs,
      method: 'POST',
      path: '/client/billing/create',
      account,
      body,
      planned: [used ? 400 : 200],
    })
    if (answer?.status === 200) this.#lastBarcode = barCode
  }

  /** A refresh where it has a refresh token. Whether one that was not answered serves still is not known: it is not used again. */
  async #token(account: SoakAccount, n: number, dueAtMs: number): Promise<void> {
    const { clientID, clientSecret, refreshToken } = account
    const isRefresh = refreshToken !== undefined && n % 4 !== 0
    account.refreshToken = undefined
    const answer = await this.ask({
      what: isRefresh ? 'token/refresh' : 'token',
      kind: 'token',
      dueAtMs,
      method: 'POST',
      path: isRefresh ? '/client/auth/token/refresh' : '/client/auth/token',
      account: {},
      body: isRefresh ? { clientID, refreshToken } : { clientID, clientSecret },
      planned: [200],
    })
    if (answer?.status !== 200) return
    account.token = answer.body.authToken
    account.refreshToken = answer.body.refreshToken
  }

  /** What the lab itself does. */
  async bill(account: SoakAccount, dueAtMs: number): Promise<void> {
    const request = newId(this.#options.arena.clock.nowMs())
    const asked = {
      what: 'bill',
      kind: 'bill' as const,
      dueAtMs,
      method: 'POST',
      path: `/operator/accounts/${account.account}/bills`,
      account: { token: this.#options.world.operatorKey },
      body: { labID: account.lab, firstName: 'Farhan', integratorID: request, tests: [{ test: account.tests[0] }] },
      planned: [201],
    }
    await this.#commit(asked, request, account, ({ billId }) => billId)
  }
}

const CREATE = { kind: 'lead' as const, method: 'POST', path: '/client/crm/lead/create' }
const BOOKING = { phase: 'booking', bookingType: 'Home Collection', scheduledAt: '2030-11-21T07:30:00+05:30' }

/** Every other one has what a whole form has. */
function detailsOf(account: SoakAccount, n: number): Record<string, unknown> {
  if (n % 2 === 0) return {}
  return {
    last_name: 'Kulkarni',
    gender: 'female',
    age: 41,
    age_type: 'year',
    source: 'Website',
    priority: 'medium',
    tests: [{ test: account.tests[n % account.tests.length], cost: 350 }],
    packages: [{ package: account.packages[n % account.packages.length], price: 900 }],
    unmappedTests: [{ name: 'Vitamin D', cost: 500 }],
  }
}
