/**
 * The real thing under the model test: the API over HTTP, the repositories of both processes, the database; two daemons are
 * two tokens. Only time and the answers of endpoints are made up.
 */
import { withinBudget } from '../../db/connection.ts'
import { removeDaemon, insertDaemon } from '../../src/deliveries/daemons-repository.ts'
import { recordAttempts } from '../../src/deliveries/attempts-repository.ts'
import { discardOldCopies } from '../../src/deliveries/old-copies-repository.ts'
import { findOwnedLane } from '../../src/deliveries/lanes-repository.ts'
import { takeLane } from '../support/take-lane.ts'
import type { AttemptResult } from '../../src/deliveries/recording-rules.ts'
import { recordEvent } from '../../src/events/events-repository.ts'
import { routeEvents } from '../../src/events/event-routing.ts'
import { newId } from '../../src/ids.ts'
import { HEALTHY, judgeAttempt } from '../../src/webhooks/webhook-health.ts'
import { warnByClock } from '../../src/webhooks/webhook-health-repository.ts'
import type { TestApp } from '../support/app.ts'
import { buildAccount, buildLab, buildParty, type TestAccount } from '../support/builders.ts'
import { isSameFlight, URL_OF_SLOT, type Flight, type Op, type Slot, type Visible } from './life-cycle-model.ts'

const RULES = {
  warnAfterSeconds: 43_200,
  warnByClockSeconds: 82_800,
  deleteAfterSeconds: 86_400,
  minWarningLeadSeconds: 0,
  retryScheduleSeconds: [5, 300, 1800, 7200, 18_000, 18_000, 21_600, 19_500],
  random: () => 0,
}

export class LifeCycleSystem {
  readonly #app: TestApp
  readonly #webhookIds: string[] = []
  readonly #eventIds: string[] = []
  #flights: { flight: Flight; result: Omit<AttemptResult, 'ok' | 'class' | 'status' | 'error' | 'durationMs'> }[] = []
  readonly daemons: [string, string] = ['', '']
  #account!: TestAccount
  #labId = ''
  #partyIds: string[] = []

  constructor(app: TestApp) {
    this.#app = app
  }

  get #knex() {
    return this.#app.database.knex
  }

  /** An account of its own; what runs before have left is out of the way of the minute's check and the fan-out. */
  async open(): Promise<this> {
    await this.#knex('webhooks').update({ state: 'deleted' })
    await this.#knex('unrouted_events').delete()
    this.#account = await buildAccount(this.#app, { mode: 'party_scoped' })
    this.#labId = (await buildLab(this.#app, this.#account)).id
    for (const kind of ['corporate', 'corporate', 'doctor'] as const) {
      this.#partyIds.push((await buildParty(this.#app, this.#account, kind)).id)
    }
    for (const daemon of [0, 1] as const) this.daemons[daemon] = await this.#join()
    return this
  }

  async #join(): Promise<string> {
    const token = newId(this.#app.clock.nowMs())
    await insertDaemon(this.#knex, { token, hintHost: '127.0.0.1', hintPort: 1 }, this.#app.clock.now())
    return token
  }

  async nextToken(): Promise<string> {
    return this.#join()
  }

  #partyQuery(slot: Slot): Record<string, string> {
    return { labID: this.#labId, [slot === 2 ? 'organization' : 'corporateUser']: this.#partyIds[slot]! }
  }

  /** @returns what the caller is told */
  async perform(op: Op, slots: Slot[]): Promise<string> {
    const { database, clock } = this.#app
    switch (op.kind) {
      case 'advance':
        clock.advance(op.ms)
        return 'done'
      case 'event':
        return this.#event(op)
      case 'route':
        await withinBudget(() => routeEvents(database.batch, clock.now(), 100))
        return 'done'
      case 'start':
        return this.#start(op)
      case 'end':
        return this.#end(op)
      case 'check':
        await warnByClock(database, clock.now(), RULES)
        return 'done'
      case 'replace_daemon': {
        const { beat } = await this.#knex('daemons').where({ token: this.daemons[op.daemon] }).first('beat')
        await database.transaction((trx) => removeDaemon(trx, this.daemons[op.daemon], beat))
        this.daemons[op.daemon] = op.token
        return 'done'
      }
      case 'discard':
        return this.#discard(op)
      case 'subscribe': {
        const body = {
          ...this.#partyQuery(op.slot),
          events: ['lead.created'],
          endpoint: URL_OF_SLOT[op.slot],
          protocol: 'https',
        }
        const answer = await this.#call('POST', '/client/events/subscribe', { body })
        if (answer.status === 200) this.#webhookIds.push(answer.body.data._id)
        return String(answer.status)
      }
      case 'delete': {
        const query = this.#partyQuery(slots[op.webhook]!)
        const path = `/client/events/deleteEvent/${this.#webhookIds[op.webhook]}`
        return String((await this.#call('DELETE', path, { query })).status)
      }
      case 'reactivate': {
        const path = `/client/events/reactivateEvent/${this.#webhookIds[op.webhook]}`
        return String((await this.#call('PATCH', path, { query: { labID: this.#labId } })).status)
      }
    }
  }

  #call(method: string, path: string, options: { query?: Record<string, string>; body?: unknown }) {
    return this.#app.call(method, path, { token: this.#account.token, ...options })
  }

  async #event({ number, slots }: Op & { kind: 'event' }): Promise<string> {
    const id = newId(this.#app.clock.nowMs())
    this.#eventIds[number] = id
    const corporate = slots.find((slot) => slot !== 2)
    await this.#app.database.transaction((trx) =>
      recordEvent(trx, {
        id,
        accountId: this.#account.id,
        labId: this.#labId,
        type: 'lead.created',
        subjectId: id,
        corporateId: corporate === undefined ? null : this.#partyIds[corporate]!,
        doctorId: slots.includes(2) ? this.#partyIds[2]! : null,
        hospitalId: null,
        body: Buffer.from('{}'),
      }),
    )
    return 'done'
  }

  async #start(op: Op & { kind: 'start' }): Promise<string> {
    const [webhookId, eventId] = [this.#webhookIds[op.webhook]!, this.#eventIds[op.event]!]
    const token = this.daemons[op.daemon]
    await takeLane(this.#app.database, webhookId, token)
    const lane = await findOwnedLane(this.#knex, webhookId, token)
    if (!lane) return 'of another'
    const row = await this.#knex('delivery_queue').where({ webhook_id: webhookId, event_id: eventId }).first()
    // What a lane starts: its webhook is active, and the copy is of this epoch.
    if (!row || lane.state !== 'active' || row.epoch !== lane.epoch) return 'not to be sent'
    const startedAt = this.#app.clock.now()
    this.#flights.push({
      flight: { webhook: op.webhook, event: op.event, token, generation: 0, startedAtMs: startedAt.getTime() },
      result: {
        token,
        webhookId,
        eventId,
        dueAt: row.due_at,
        place: 0,
        earlyAttempts: 0,
        n: row.attempts + 1,
        epoch: row.epoch,
        isTest: false,
        isMessage: false,
        startedAt,
        answer: null,
        retryAfterMs: undefined,
      },
    })
    return 'started'
  }

  async #end(op: Op & { kind: 'end' }): Promise<string> {
    const { database, clock } = this.#app
    const results = op.results.map(({ flight, ok, error }): AttemptResult => {
      const { result } = this.#flights.find((other) => isSameFlight(other.flight, flight))!
      const durationMs = clock.nowMs() - result.startedAt.getTime()
      if (ok) return { ...result, ok, class: 'ok', status: 204, error: null, durationMs }
      return { ...result, ok, class: 'status', status: 500, error, durationMs }
    })
    this.#flights = this.#flights.filter(
      (other) => !op.results.some(({ flight }) => isSameFlight(other.flight, flight)),
    )
    // As the recorder does: again, when another transaction was in the way.
    await withinBudget(() => recordAttempts(database.batch, op.token, results, clock.now(), RULES))
    return 'done'
  }

  /** A lane discards after its own attempts in flight have ended. */
  async #discard(op: Op & { kind: 'discard' }): Promise<string> {
    const { database, clock } = this.#app
    const [webhookId, token] = [this.#webhookIds[op.webhook]!, this.daemons[op.daemon]]
    const lane = await findOwnedLane(this.#knex, webhookId, token)
    if (lane)
      await database.transaction((trx) => discardOldCopies(trx, { ...lane, token, heldEventIds: [] }, clock.now(), 100))
    return 'done'
  }

  /** What can be seen, and what must hold whatever was done. @throws when an invariant is broken */
  async observe(): Promise<{ webhooks: Visible; onUrl: number[][] }> {
    const ids = this.#webhookIds
    const [rows, mails, queued, ended, attempts] = await Promise.all([
      this.#knex('webhooks').whereIn('id', ids),
      this.#knex('mails').whereIn('webhook_id', ids).orderBy('id'),
      this.#knex('delivery_queue').whereIn('webhook_id', ids),
      this.#knex('deliveries').whereIn('webhook_id', ids),
      this.#listAttempts(),
    ])
    const seen = ids.map((id) => {
      const row = rows.find((other) => other.id === id)
      const own = <T extends { webhook_id: string }>(all: T[]) => all.filter((other) => other.webhook_id === id)
      mustReplay(row, own(attempts))
      return {
        onUrl: own(mails).map((mail) => mail.webhooks_on_url as number),
        webhook: {
          slot: this.#partyIds.indexOf(row.corporate_id ?? row.organization_id) as Slot,
          state: row.state,
          firstFailureMs: row.first_failure_at?.getTime() ?? null,
          failedAttempts: row.failed_attempts,
          lastError: row.last_error,
          warned: row.warned_at !== null,
          mails: own(mails).map((mail) => ({
            kind: mail.kind,
            sinceMs: mail.failing_since.getTime(),
            failedAttempts: mail.failed_attempts,
            lastError: mail.last_error,
          })),
          copies: this.#copiesOf(row, own(queued), own(ended)),
        },
      }
    })
    const webhooks: Visible = seen.map(({ webhook }) => webhook)
    await this.#mustBeListed(webhooks)
    return { webhooks, onUrl: seen.map(({ onUrl }) => onUrl) }
  }

  #listAttempts(): Promise<any[]> {
    return this.#knex('attempts as a')
      .join('events as e', 'e.id', 'a.event_id')
      .join('webhooks as w', 'w.id', 'a.webhook_id')
      .whereIn('a.webhook_id', this.#webhookIds)
      .orderBy('a.seq')
      .select('a.webhook_id', 'a.seq', 'a.class', 'a.error', 'a.started_at', 'a.duration_ms', {
        // Of before a reactivation: it judges nothing.
        current: this.#knex.raw('e.recorded_at >= w.active_from'),
      })
  }

  /** As the log shows them: what waits under an older epoch counts as discarded. */
  #copiesOf(webhook: { state: string; epoch: number }, queued: any[], ended: any[]): Record<number, string> {
    const copies = [
      ...queued.map((row) => {
        const waits = webhook.state === 'active' && row.epoch === webhook.epoch
        return [this.#eventIds.indexOf(row.event_id), `${waits ? 'pending' : 'discarded'} ${row.attempts}`] as const
      }),
      ...ended.map((row) => [this.#eventIds.indexOf(row.event_id), `${row.status} ${row.attempts}`] as const),
    ]
    const seen = Object.fromEntries(copies)
    if (Object.keys(seen).length !== copies.length) throw new Error('a delivery is both pending and ended')
    return seen
  }

  /** In exactly one list or none, by its state, and a party's event in one active webhook at most. */
  async #mustBeListed(webhooks: Visible): Promise<void> {
    const idsOf = (state: string, slot?: Slot) =>
      this.#webhookIds.filter(
        (_, n) => webhooks[n]!.state === state && (slot === undefined || webhooks[n]!.slot === slot),
      )
    const same = (answer: { body: any }, ids: string[], what: string) => {
      const listed = answer.body.data.map(({ _id }: { _id: string }) => _id).sort()
      if (JSON.stringify(listed) !== JSON.stringify([...ids].sort())) throw new Error(`the list of ${what} is wrong`)
    }
    for (const slot of [0, 1, 2] as const) {
      const query = this.#partyQuery(slot)
      same(await this.#call('GET', '/client/events/getAllEvents', { query }), idsOf('active', slot), 'active webhooks')
      if (idsOf('active', slot).length > 1) throw new Error('a party has two active webhooks for one event')
    }
    const query = { labID: this.#labId }
    const deactivated = await this.#call('GET', '/client/events/getDeactivatedEvents', { query })
    same(deactivated, idsOf('auto_deleted'), 'deactivated webhooks')
  }
}

/** The attempts, in the order in which they were recorded, make the webhook's row. */
function mustReplay(row: Record<string, any>, attempts: any[]): void {
  if (attempts.some(({ seq }, index) => Number(seq) !== index + 1)) throw new Error('the attempts have gaps')
  if (row.state === 'deleted') return
  let health = HEALTHY
  for (const { class: kind, error, started_at: startedAt, duration_ms: durationMs, current } of attempts) {
    if (!current) continue
    const verdict = kind === 'ok' ? ({ ok: true } as const) : { ok: false as const, error }
    const judged = judgeAttempt(health, verdict, new Date(startedAt.getTime() + durationMs), RULES)
    health = judged.health
    if (judged.effects.includes('auto_delete')) break
  }
  const replayed = [health.firstFailureAt?.getTime(), health.failedAttempts, health.lastError]
  const stored = [row.first_failure_at?.getTime(), row.failed_attempts, row.last_error]
  if (JSON.stringify(replayed) !== JSON.stringify(stored)) {
    throw new Error(`replayed ${JSON.stringify(replayed)}, stored ${JSON.stringify(stored)}`)
  }
}
