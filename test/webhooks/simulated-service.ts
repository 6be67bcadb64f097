/**
 * The real thing under the simulation: the API over HTTP, fan-out, queue, records, the clock's look and the database; one daemon,
 * whose turns are steps of some minutes. Several webhooks share each URL.
 */
import { insertDaemon } from '../../src/deliveries/daemons-repository.ts'
import { recordAttempts } from '../../src/deliveries/attempts-repository.ts'
import { listDueOfSeveral, type PendingDelivery } from '../../src/deliveries/delivery-queue-repository.ts'
import { clearEager, listOwnedLanes, type LaneState } from '../../src/deliveries/lanes-repository.ts'
import { discardOldCopies } from '../../src/deliveries/old-copies-repository.ts'
import type { AttemptResult, RecordingRules } from '../../src/deliveries/recording-rules.ts'
import { routeEvents } from '../../src/events/event-routing.ts'
import { recordEvent } from '../../src/events/events-repository.ts'
import { newId } from '../../src/ids.ts'
import { warnByClock } from '../../src/webhooks/webhook-health-repository.ts'
import type { TestApp } from '../support/app.ts'
import { buildAccount, buildLab, buildParty, type TestAccount } from '../support/builders.ts'
import { attemptedCopy } from '../support/hand-daemon.ts'
import { patiently, TRIES } from '../support/patiently.ts'
import { takeLane } from '../support/take-lane.ts'
import { tellInSimulatedTime } from './in-simulated-time.ts'
import type { Entry, SeenRow } from './life-judge.ts'
import { SimulatedEndpoint } from './simulated-endpoint.ts'
import { MINUTE_MS, PEOPLE, RULES } from './simulated-life.ts'

const PARTIES_OF_ACCOUNT = 10
const SHARING_A_URL = 3
/** After a start of an attempt, for what may come before its end. */
const MEANWHILE_MS = 4000
/** An attempt takes no longer. */
const RECORDED_AFTER_MS = 10_000
const MANY = 1000
/** More than a recovery looks ahead for. */
const ALL = new Date('9999-01-01T00:00:00Z')

interface Webhook {
  id: string
  createdAtMs: number
  entries: Entry[]
  state: 'active' | 'auto_deleted' | 'deleted'
}

/** A party, with one webhook after the other. */
interface Slot {
  account: TestAccount
  labId: string
  partyId: string
  partyName: string
  endpoint: SimulatedEndpoint
  url: string
  webhook: Webhook
}

export class SimulatedService {
  readonly #app: TestApp
  readonly #random: () => number
  readonly #rules: RecordingRules
  readonly #count: number
  readonly #isFrail: boolean
  readonly #slots: Slot[] = []
  readonly #all: Webhook[] = []
  readonly #byId = new Map<string, { slot: Slot; webhook: Webhook }>()
  readonly #events = new Map<string, number>()
  #token = ''
  #lastMail = ''

  /** When something of the queue is due; the steps until then only look at the clock. */
  #nextDueMs = 0
  /** Something has gone, or may have: its copies are to be discarded. */
  #hasEnded = false

  /** @param isFrail see SimulatedEndpoint */
  constructor(app: TestApp, random: () => number, count: number, isFrail: boolean) {
    this.#app = app
    this.#random = random
    this.#rules = { ...RULES, random }
    this.#count = count
    this.#isFrail = isFrail
  }

  get #knex() {
    return this.#app.database.knex
  }

  async open(): Promise<this> {
    this.#token = newId(this.#app.clock.nowMs())
    const now = this.#app.clock.now()
    await insertDaemon(this.#knex, { token: this.#token, hintHost: '127.0.0.1', hintPort: 1 }, now)
    let account!: TestAccount
    let labId = ''
    for (let n = 0; n < this.#count; n++) {
      if (n % PARTIES_OF_ACCOUNT === 0) {
        account = await buildAccount(this.#app, { mode: 'party_scoped' })
        labId = (await buildLab(this.#app, account)).id
      }
      const party = await buildParty(this.#app, account, 'corporate')
      const endpoint = new SimulatedEndpoint(this.#random, this.#isFrail)
      const url = `https://hooks-${Math.floor(n / SHARING_A_URL)}.example.com/in`
      const slot = { account, labId, partyId: party.id, partyName: party.name, endpoint, url }
      this.#slots.push(await this.#subscribe(slot))
    }
    return this
  }

  async #subscribe(slot: Omit<Slot, 'webhook'>): Promise<Slot> {
    const { labId: labID, partyId: corporateUser, url: endpoint } = slot
    const body = { labID, corporateUser, events: ['lead.created'], endpoint, protocol: 'https' }
    const answer = await this.#call(slot, 'POST', '/client/events/subscribe', { body })
    const createdAtMs = this.#app.clock.nowMs()
    const webhook: Webhook = { id: answer.body.data._id, createdAtMs, entries: [], state: 'active' }
    const filled = Object.assign(slot, { webhook })
    this.#all.push(webhook)
    this.#byId.set(webhook.id, { slot: filled, webhook })
    if (!(await takeLane(this.#app.database, webhook.id, this.#token))) throw new Error('a new lane is not free')
    // A party has one active webhook for an event.
    const second = await this.#call(slot, 'POST', '/client/events/subscribe', { body })
    if (second.status !== 409) throw new Error(`I18: a second webhook of a party is ${second.status}`)
    return filled
  }

  async #call(
    slot: Pick<Slot, 'account'>,
    method: string,
    path: string,
    options: { query?: Record<string, string>; body?: unknown },
  ) {
    for (let tries = 1; ; tries++) {
      const answer = await this.#app.call(method, path, { token: slot.account.token, ...options })
      if (answer.status !== 503 || tries === TRIES) return answer
    }
  }

  /** Time goes by, people act, events come, and one turn of the daemon follows. */
  async step(minutes: number): Promise<void> {
    const { clock, database } = this.#app
    const endsAtMs = clock.nowMs() + minutes * MINUTE_MS
    for (const { endpoint } of this.#slots) endpoint.pass(minutes)
    const acting = this.#slots.filter(() => this.#random() < 0.5)
    await this.#people(acting, minutes)
    await this.#recordEvents(minutes)
    const isTurn = this.#nextDueMs <= clock.nowMs()
    const results = isTurn ? await this.#send() : []
    clock.advance(MEANWHILE_MS)
    await this.#people(this.#slots.filter((slot) => !acting.includes(slot)), minutes) // prettier-ignore
    clock.advance(RECORDED_AFTER_MS - MEANWHILE_MS)
    await this.#record(results)
    // A recovery may bring something before its time.
    if (isTurn) this.#nextDueMs = results.some(({ ok }) => ok) ? 0 : await this.#readNextDue()
    const warned = await patiently(() => warnByClock(database, clock.now(), RULES))
    if (results.length > 0 || warned.length > 0) await this.#noteMails()
    if (this.#hasEnded) await this.#discard()
    clock.advance(endsAtMs - clock.nowMs())
  }

  async #people(slots: Slot[], minutes: number): Promise<void> {
    const { clock } = this.#app
    // In few days it is to happen all the same.
    const reactivate = PEOPLE.reactivate * (this.#isFrail ? 3 : 1)
    for (const slot of slots) {
      const { webhook, labId: labID, partyId: corporateUser } = slot
      const chance = this.#random()
      const isActive = webhook.state === 'active'
      // Half of them are asked in each step, before the attempts or beside them.
      if (chance < minutes * (isActive ? PEOPLE.deleteActive : PEOPLE.deleteGone)) {
        const path = `/client/events/deleteEvent/${webhook.id}`
        mustBe(await this.#call(slot, 'DELETE', path, { query: { labID, corporateUser } }), 200)
        webhook.entries.push({ kind: 'deleted', atMs: clock.nowMs() })
        webhook.state = 'deleted'
        this.#hasEnded = true
        // What is deleted stays so.
        mustBe(
          await this.#call(slot, 'PATCH', `/client/events/reactivateEvent/${webhook.id}`, { query: { labID } }),
          404,
        )
        await this.#subscribe(slot)
      } else if (!isActive && chance > 1 - minutes * reactivate) {
        mustBe(
          await this.#call(slot, 'PATCH', `/client/events/reactivateEvent/${webhook.id}`, { query: { labID } }),
          200,
        )
        const [row] = await this.#rows([webhook.id])
        webhook.entries.push({ kind: 'reactivated', atMs: clock.nowMs(), row: row! })
        webhook.state = 'active'
      }
    }
  }

  async #recordEvents(minutes: number): Promise<void> {
    const { clock, database } = this.#app
    const slots = this.#slots.filter(({ endpoint }) => this.#random() < (endpoint.eventsAnHour * minutes) / 60)
    if (slots.length === 0) return
    this.#nextDueMs = 0
    const events = slots.map((slot) => ({ slot, id: newId(clock.nowMs()) }))
    await patiently(() =>
      database.transaction(async (trx) => {
        for (const { slot, id } of events) {
          await recordEvent(trx, {
            ...{ id, accountId: slot.account.id, labId: slot.labId, type: 'lead.created', subjectId: id },
            ...{ corporateId: slot.partyId, doctorId: null, hospitalId: null, body: Buffer.from('{}') },
          })
        }
      }),
    )
    for (const { slot, id } of events) {
      const event = this.#events.size
      this.#events.set(id, event)
      slot.webhook.entries.push({ kind: 'event', event, atMs: clock.nowMs() })
    }
  }

  async #readNextDue(): Promise<number> {
    const [next] = await this.#knex('delivery_queue').min({ at: 'due_at' })
    return (next!.at as Date | null)?.getTime() ?? Infinity
  }

  async #send(): Promise<AttemptResult[]> {
    const { clock, database } = this.#app
    while ((await routeEvents(database.batch, clock.now(), MANY)).events === MANY);
    const due = await this.#due(await listOwnedLanes(this.#knex, this.#token))
    // Ids are not of the seed, and it gives the answers one by one.
    const place = ({ webhookId, eventId }: PendingDelivery) =>
      this.#slots.indexOf(this.#byId.get(webhookId)!.slot) * MANY * MANY + this.#events.get(eventId)!
    due.sort((a, b) => place(a) - place(b))
    return due.map((copy) => this.#attempt(copy))
  }

  /** What a lane reads: what is due, and behind a recovery what waits for its time. */
  async #due(lanes: LaneState[]): Promise<PendingDelivery[]> {
    const now = this.#app.clock.now()
    const active = lanes.filter(({ state }) => state === 'active')
    const isEager = ({ eagerUntil, failing }: LaneState) => !failing && eagerUntil !== null
    if (active.length === 0) return []
    const requests = active.map((lane) => ({
      webhookId: lane.webhookId,
      times: { now, until: isEager(lane) ? ALL : now },
      after: undefined,
      limit: MANY,
    }))
    const lists = await listDueOfSeveral(this.#knex, requests)
    for (const [n, lane] of active.entries()) {
      if (isEager(lane) && lists[n]!.length === 0) await clearEager(this.#knex, lane.webhookId, this.#token)
    }
    const epochs = new Map(active.map(({ webhookId, epoch }) => [webhookId, epoch]))
    return lists.flat().filter(({ webhookId, epoch }) => epochs.get(webhookId) === epoch)
  }

  #attempt(copy: PendingDelivery): AttemptResult {
    const { endpoint } = this.#byId.get(copy.webhookId)!.slot
    const { ok, error, durationMs, retryAfterMs } = endpoint.answer()
    return {
      ...attemptedCopy(this.#token, copy),
      ...{ startedAt: this.#app.clock.now(), durationMs, retryAfterMs, answer: null },
      ...{ ok, class: ok ? 'ok' : 'status', status: ok ? 204 : 500, error: ok ? null : error },
    }
  }

  async #record(results: AttemptResult[]): Promise<void> {
    if (results.length === 0) return
    const { clock, database } = this.#app
    // As they end.
    results.sort((a, b) => a.durationMs - b.durationMs)
    await recordAttempts(database.batch, this.#token, results, clock.now(), this.#rules)
    const last = new Map(results.map((result) => [result.webhookId, result]))
    const rows = await this.#rows([...last.keys()])
    const rowOf = new Map([...last.keys()].map((id, n) => [id, rows[n]!]))
    for (const result of results) {
      const { webhookId, eventId, startedAt, durationMs, retryAfterMs, ok, error } = result
      const { webhook } = this.#byId.get(webhookId)!
      const startedAtMs = startedAt.getTime()
      const times = { startedAtMs, endedAtMs: startedAtMs + durationMs, retryAfterMs }
      const isSeen = last.get(webhookId) === result && webhook.state === 'active'
      const row = isSeen ? rowOf.get(webhookId) : undefined
      webhook.entries.push({
        kind: 'attempt',
        event: this.#events.get(eventId)!,
        ...times,
        ok,
        error: error ?? '',
        row,
      })
    }
    for (const [id, { state }] of rowOf) {
      const { webhook } = this.#byId.get(id)!
      if (webhook.state !== 'active' || state !== 'auto_deleted') continue
      webhook.state = state
      this.#hasEnded = true
    }
  }

  /** In the order of the ids. */
  async #rows(ids: string[]): Promise<SeenRow[]> {
    const found = await this.#knex('webhooks').whereIn('id', ids)
    const byId = new Map(found.map((row) => [row.id as string, row]))
    return ids.map((id) => {
      const row = byId.get(id)
      const firstFailureMs = row.first_failure_at?.getTime() ?? null
      const record = { failedAttempts: row.failed_attempts, lastError: row.last_error, warned: row.warned_at !== null }
      return { state: row.state, firstFailureMs, ...record }
    })
  }

  async #noteMails(): Promise<void> {
    const mails = await this.#knex('mails').where('id', '>', this.#lastMail).orderBy('id')
    for (const mail of mails) {
      const { slot, webhook } = this.#byId.get(mail.webhook_id)!
      webhook.entries.push({
        ...{ kind: 'mail', mail: mail.kind, atMs: mail.created_at.getTime(), sinceMs: mail.failing_since.getTime() },
        ...{ failedAttempts: mail.failed_attempts, lastError: mail.last_error },
      })
      const said = [mail.endpoint, mail.events, mail.party_name]
      const meant = [slot.url, 'lead.created', slot.partyName]
      if (String(said) !== String(meant)) throw new Error(`I16: the mail says ${said}, not ${meant}`)
      const most = this.#slots.filter(({ url, account }) => url === slot.url && account === slot.account).length
      if (mail.webhooks_on_url < 1 || mail.webhooks_on_url > most)
        throw new Error(`I16: the mail says ${mail.webhooks_on_url} of ${most} webhooks on the URL`)
      this.#lastMail = mail.id
    }
  }

  async #discard(): Promise<void> {
    const { clock, database } = this.#app
    this.#hasEnded = false
    const lanes = await listOwnedLanes(this.#knex, this.#token)
    for (const lane of lanes.filter(({ cleanEpoch, epoch }) => cleanEpoch < epoch)) {
      const held = { ...lane, token: this.#token, heldEventIds: [] }
      await patiently(() => database.transaction((trx) => discardOldCopies(trx, held, clock.now(), MANY)))
    }
  }

  /** What became of every webhook, and what must hold for all of them at the end. @throws when it does not */
  async histories(): Promise<Entry[][]> {
    const rows = await this.#rows(this.#all.map(({ id }) => id))
    for (const [n, { state }] of rows.entries()) {
      if (state !== this.#all[n]!.state) throw new Error(`I15: ${state}, not ${this.#all[n]!.state}`)
    }
    const waiting = await this.#knex('delivery_queue as q').join('webhooks as w', 'w.id', 'q.webhook_id')
      .where((or) => or.whereNot('w.state', 'active').orWhereRaw('q.epoch <> w.epoch')) // prettier-ignore
    if (waiting.length > 0) throw new Error(`I8: ${waiting.length} copies wait for webhooks that have gone`)
    const [counted] = await this.#knex('attempts').count({ n: '*' })
    const seen = this.#all.flatMap(({ entries }) => entries).filter(({ kind }) => kind === 'attempt').length
    if (Number(counted!.n) !== seen) throw new Error(`I20: ${counted!.n} attempts on record of ${seen}`)
    await tellInSimulatedTime(this.#knex, this.#all, this.#events)
    return this.#all.map(({ entries }) => entries)
  }
}

function mustBe(answer: { status: number; body: unknown }, status: number): void {
  if (answer.status !== status) throw new Error(`I15: ${answer.status}, not ${status}: ${JSON.stringify(answer.body)}`)
}
