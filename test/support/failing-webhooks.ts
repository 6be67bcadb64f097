/**
 * Webhooks in the middle of failing, a receiver that answers as the test says, and a mail server.
 */
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest'
import { checkWebhookHealth } from '../../daemon/jobs/check-webhook-health.ts'
import { startHttpsReceiver, type Answer, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { createLogger } from '../../src/logger.ts'
import { openTestDatabase, type TestDatabase } from './database.ts'
import { DeliveryWorld } from './delivery-world.ts'
import { startSmtpServer, type TestSmtpServer } from './smtp.ts'
import { createTestTls } from './tls.ts'

const HOUR_MS = 3_600_000
const EMPTIED = ['delivery_queue', 'unrouted_events', 'lanes', 'webhooks', 'webhook_events', 'daemons', 'mails']

export const log = createLogger('daemon', 'silent')

export class FailingWebhooks {
  db!: TestDatabase
  tls!: Awaited<ReturnType<typeof createTestTls>>
  world!: DeliveryWorld
  receiver!: HttpsReceiver
  smtp!: TestSmtpServer
  answer!: () => Answer

  readonly knex = () => this.db.database.knex
  readonly webhookRow = (id: string) => this.knex()('webhooks').where({ id }).first()
  readonly mailRows = (webhookId: string) => this.knex()('mails').where({ webhook_id: webhookId }).orderBy('id')

  /** A webhook with one failed attempt, that long ago: the rest of its history is waited for by the test. */
  async failingFor(hours: number, wish: { corporateId?: string } = {}) {
    const events = ['lead.created' as const, 'bill.created' as const]
    const webhook = await this.world.webhook({ endpoint: `${this.receiver.url}/hooks`, events, ...wish })
    await this.knex()('webhooks')
      .where({ id: webhook.id })
      .update({
        first_failure_at: new Date(this.world.clock.nowMs() - hours * HOUR_MS),
        failed_attempts: 6,
        last_error: 'HTTP status 502',
      })
    return webhook
  }

  /** The clock's job, once. */
  check(onWarned = () => {}): Promise<void> {
    const { world } = this
    return checkWebhookHealth({
      database: this.db.database,
      clock: world.clock,
      log,
      limits: world.config(),
      onWarned,
    })()
  }
}

/** A new world for each test of the file; endpoints answer 500 until the test says otherwise. */
export function failingWebhooks(): FailingWebhooks {
  const own = new FailingWebhooks()
  beforeAll(async () => {
    own.tls = await createTestTls()
    own.db = await openTestDatabase()
  })
  afterAll(async () => {
    await own.db.close()
    own.tls.remove()
  })
  beforeEach(async () => {
    own.answer = () => ({ status: 500, body: 'patient Asha' })
    own.receiver = await startHttpsReceiver(own.tls, () => own.answer())
    own.smtp = await startSmtpServer()
    own.world = await new DeliveryWorld(own.db.database).open()
  })
  afterEach(async () => {
    await own.world.close()
    await own.receiver.close()
    await own.smtp.close()
    for (const table of EMPTIED) await own.db.database.knex(table).delete()
  })
  return own
}
