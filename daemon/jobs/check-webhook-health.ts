import { isConnectionFault, type Database } from '../../db/connection.ts'
import type { Clock } from '../../src/clock.ts'
import { errorFields, type Logger } from '../../src/logger.ts'
import { warnByClock } from '../../src/webhooks/webhook-health-repository.ts'
import type { HealthLimits } from '../../src/webhooks/webhook-health.ts'

export interface CheckWebhookHealthDeps {
  database: Database
  clock: Clock
  log: Logger
  limits: HealthLimits
  /** Told after the commit, where there are mails to send. */
  onWarned: () => void
}

const SELDOM_MS = 5000
const OFTEN_MS = 1000
const LOOKS = 60

/** One look at an index, unless a warning is due: more often for who tries it out with periods of seconds. @returns milliseconds */
export function healthCheckEveryMs({ warnByClockSeconds }: Pick<HealthLimits, 'warnByClockSeconds'>): number {
  return Math.min(SELDOM_MS, Math.max(OFTEN_MS, (warnByClockSeconds * 1000) / LOOKS))
}

/** The warning by the clock, for a failing webhook to which no attempt was made in time. It deletes nobody. */
export function checkWebhookHealth({
  database,
  clock,
  log,
  limits,
  onWarned,
}: CheckWebhookHealthDeps): () => Promise<void> {
  return async () => {
    const warned = await warnByClock(database, clock.now(), limits, (webhookId, error) => {
      // Of the database the job says it, and begins anew.
      if (isConnectionFault(error)) throw error
      log.warn('webhook.warning_delayed', { ...errorFields(error), webhookId })
    })
    for (const webhookId of warned) log.info('webhook.health_changed', { webhookId, state: 'warned' })
    if (warned.length > 0) onWarned()
  }
}
