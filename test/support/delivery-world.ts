/**
 * What the tests of routing and delivery share: webhooks and events written by the real repositories, and real daemons.
 */
import { randomBytes } from 'node:crypto'
import { Writable } from 'node:stream'
import type { Database } from '../../db/connection.ts'
import { startDaemon, type RunningDaemon } from '../../daemon/daemon.ts'
import type { Account } from '../../src/accounts/accounts-repository.ts'
import { DatabaseClock, monotonicMs } from '../../src/clock.ts'
import { readConfig, type Config } from '../../src/config.ts'
import { deriveKeys, seal } from '../../src/crypto.ts'
import { formatSecret } from '../../src/deliveries/signature.ts'
import { routeEvents, type Routed } from '../../src/events/event-routing.ts'
import { recordEvent } from '../../src/events/events-repository.ts'
import type { EventType, RecordedEvent } from '../../src/events/event-types.ts'
import type { MessageEvent, MessageType } from '../../src/events/message-payloads.ts'
import { newId, publicEventId } from '../../src/ids.ts'
import { createLogger } from '../../src/logger.ts'
import { recordMessage } from '../../src/messages/message-recording.ts'
import { deactivatedWebhookHandlers } from '../../src/webhooks/deactivated-webhook-handlers.ts'
import { webhookCareHandlers } from '../../src/webhooks/webhook-care-handlers.ts'
import { claimWebhook, insertWebhook, recordDeletion } from '../../src/webhooks/webhooks-repository.ts'
import { Canaries } from './canaries.ts'

export const SECRETS_KEY = randomBytes(32)

export interface TestWebhook {
  id: string
  secret: string
}

export interface WebhookWish {
  endpoint: string
  events?: EventType[]
  labId?: string
  corporateId?: string
  organizationId?: string
}

export interface MessageWish {
  type?: MessageType
  labId?: string
  corporateId?: string | null
  doctorId?: string | null
  hospitalId?: string | null
  text?: string
}

export class DeliveryWorld {
  readonly database: Database
  readonly clock = new DatabaseClock()
  readonly keys = deriveKeys(SECRETS_KEY)
  readonly accountId = newId(0)
  readonly labId = newId(1)
  readonly #daemons: RunningDaemon[] = []
  readonly #canaries = new Canaries()
  /** What the daemons have logged. */
  readonly #lines: string[] = []

  constructor(database: Database) {
    this.database = database
  }

  async open(): Promise<this> {
    await this.clock.follow(this.database.readTimeMs, () => {})
    const createdAt = this.clock.now()
    await this.database.knex('accounts').insert({
      id: this.accountId,
      name: 'Partner',
      mode: 'catch_all',
      time_zone: 'Asia/Kolkata',
      admin_email: 'account-admin@example.com',
      created_at: createdAt,
    })
    await this.database.knex('labs').insert({
      id: this.labId,
      account_id: this.accountId,
      name: 'Sunrise <Diagnostics>',
      contact: '08041234501',
      created_at: createdAt,
    })
    return this
  }

  /** @throws when something of a patient, or a secret, stands in a daemon's log line */
  async close(): Promise<void> {
    for (const daemon of this.#daemons) await daemon.stop()
    this.clock.stop()
    this.#canaries.requireNoneIn(this.#lines)
  }

  async webhook(wish: WebhookWish): Promise<TestWebhook> {
    const now = this.clock.now()
    const id = newId(now.getTime())
    const key = randomBytes(32)
    await this.database.knex.transaction((trx) =>
      insertWebhook(
        trx,
        {
          id,
          accountId: this.accountId,
          labId: wish.labId ?? this.labId,
          corporateId: wish.corporateId ?? null,
          organizationId: wish.organizationId ?? null,
          endpoint: wish.endpoint,
          events: wish.events ?? ['lead.created'],
          createdAt: now,
          updatedAt: now,
        },
        seal(this.keys, key, id),
      ),
    )
    const secret = formatSecret(key)
    this.#canaries.addSecret('secret', secret)
    return { id, secret }
  }

  async deleteWebhook(id: string, labId = this.labId): Promise<void> {
    await this.database.transaction(async (trx) => {
      const claimed = await claimWebhook(trx, this.accountId, labId, id, 'whole_lab')
      if (!claimed) throw new Error('no such webhook')
      await recordDeletion(trx, id, this.clock.now())
    })
  }

  async reactivateWebhook(id: string): Promise<void> {
    const { reactivateWebhook } = deactivatedWebhookHandlers(this.#handlerDeps())
    await reactivateWebhook({ ...this.#call(), path: { _id: id }, body: undefined as never })
  }

  /** As the record of its last failed attempt does. */
  async autoDeleteWebhook(id: string): Promise<void> {
    const { knex } = this.database
    await knex('webhooks')
      .where({ id })
      .update({
        state: 'auto_deleted',
        epoch: knex.raw('epoch + 1'),
        inactive_from: knex.raw('UTC_TIMESTAMP(6)'),
        deactivated_at: this.clock.now(),
      })
  }

  /** A fan-out of what waits, without a daemon. */
  async route(limit = 1000): Promise<Routed> {
    return routeEvents(this.database.batch, this.clock.now(), limit)
  }

  /** What waits of an event, by webhook. */
  async copiesOf(eventId: string): Promise<{ webhook_id: string; epoch: number }[]> {
    return this.database
      .knex('delivery_queue')
      .where({ event_id: eventId })
      .orderBy('webhook_id')
      .select('webhook_id', 'epoch')
  }

  async rotateSecret(id: string, graceSeconds: number): Promise<{ secret: string }> {
    const { rotateWebhookSecret } = webhookCareHandlers(this.#handlerDeps())
    const { body } = await rotateWebhookSecret({ ...this.#call(), path: { id }, body: { graceSeconds } })
    this.#canaries.noteAnswer(body)
    return { secret: body.data.secret }
  }

  /** @returns the event's id without its prefix */
  async sendTestEvent(id: string): Promise<string> {
    const { sendTestEvent } = webhookCareHandlers(this.#handlerDeps())
    const { body } = await sendTestEvent({ ...this.#call(), path: { id }, body: undefined as never })
    return body.data.eventId.slice(publicEventId('').length)
  }

  #handlerDeps() {
    return {
      database: this.database,
      clock: this.clock,
      keys: this.keys,
      hint: () => {},
    }
  }

  #call() {
    const account: Account = {
      id: this.accountId,
      name: 'Partner',
      mode: 'catch_all',
      timeZone: 'Asia/Kolkata',
      adminEmail: 'account-admin@example.com',
      sandbox: false,
      createdAt: this.clock.now(),
    }
    return { account, query: { labID: this.labId }, requestId: 'test' }
  }

  /** Records an event through the outbox. */
  async event(wish: Partial<RecordedEvent> = {}): Promise<RecordedEvent> {
    const id = newId(this.clock.nowMs())
    const event: RecordedEvent = {
      id,
      accountId: this.accountId,
      labId: this.labId,
      type: 'lead.created',
      subjectId: id,
      corporateId: null,
      doctorId: null,
      hospitalId: null,
      body: Buffer.from(JSON.stringify({ id: publicEventId(id), name: this.#canaries.plant('name', 'Asha ') })),
      ...wish,
    }
    await this.database.transaction((trx) => recordEvent(trx, event))
    return event
  }

  /** Records a message through the outbox. */
  async message(wish: MessageWish = {}): Promise<MessageEvent> {
    const { type = 'booking.send', labId = this.labId, text = 'Your visit is on Monday.' } = wish
    const { corporateId = null, doctorId = null, hospitalId = null } = wish
    const now = this.clock.now()
    const id = newId(now.getTime())
    const record = { id: newId(now.getTime()), accountId: this.accountId, labId, integratorId: 'CRM-1', version: 1 }
    this.#canaries.noteBody({ text })
    const message = {
      type,
      subject: { kind: 'entry' as const, ...record, corporateId, doctorId, hospitalId },
      recipient: { contact: '9876543210', name: 'Asha' },
      template: 'visit_reminder',
      text,
      variables: { day: 'Monday' },
      attachmentUrl: null,
    }
    return this.database.transaction((trx) => recordMessage(trx, id, message, now))
  }

  config(env: Record<string, string> = {}): Config {
    return readConfig({
      NODE_ENV: 'test',
      DATA_DIR: '/nonexistent',
      SECRETS_KEY: SECRETS_KEY.toString('base64'),
      MYSQL_URL: 'mysql://unused/unused',
      PORT: '0',
      DAEMON_PORT: '0',
      ...env,
    })
  }

  /** A daemon of its own; stopped with the world at the latest. */
  async daemon(caFile: string, env: Record<string, string> = {}): Promise<RunningDaemon> {
    const daemon = await startDaemon({
      config: this.config({ DELIVERY_CA_FILE: caFile, ...env }),
      database: this.database,
      clock: this.clock,
      log: createLogger('daemon', 'debug', this.#logStream()),
      version: '0.0.0-test',
      random: () => 0,
    })
    const stop = daemon.stop
    let stopped: Promise<void> | undefined
    daemon.stop = () => (stopped ??= stop())
    this.#daemons.push(daemon)
    return daemon
  }

  get logged(): Record<string, unknown>[] {
    return this.#lines.map((line) => JSON.parse(line))
  }

  #logStream(): Writable {
    return new Writable({
      write: (chunk, _, done) => {
        this.#lines.push(String(chunk))
        done()
      },
    })
  }

  /** Waits until nothing is unrouted or due any more. */
  async settled(timeoutMs = 10_000): Promise<void> {
    const untilMs = monotonicMs() + timeoutMs
    for (;;) {
      const [[row]] = await this.database.knex.raw(
        `SELECT (SELECT COUNT(*) FROM unrouted_events) + (SELECT COUNT(*) FROM delivery_queue WHERE due_at <= UTC_TIMESTAMP(3)) AS n`,
      )
      if (Number(row.n) === 0) return
      if (monotonicMs() > untilMs) throw new Error(`${row.n} events or deliveries are still due`)
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
  }
}
