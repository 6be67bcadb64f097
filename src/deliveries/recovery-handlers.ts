/**
 * Sending again by hand, for integrators.
 */
import { notFound } from '../errors.ts'
import { inKeyedTransaction } from '../idempotency/idempotency.ts'
import type { AccountHandler, HandlerDeps } from '../handlers.ts'
import { findLogWebhook } from './delivery-log-webhooks-repository.ts'
import { getDeliveryDetail, getLogScope, getWebhookWithin } from './delivery-log-access.ts'
import { eventIdOf } from './delivery-log-rules.ts'
import { toDeliveryDetail, toRecoveryRow } from './delivery-log-rows.ts'
import { redeliver, startRecovery } from './recovery.ts'
import { findRecovery } from './recovery-repository.ts'
import { recoveryStart } from './recovery-rules.ts'

interface RecoveryHandlers {
  redeliver: AccountHandler<'redeliver'>
  startRecovery: AccountHandler<'startRecovery'>
  getRecovery: AccountHandler<'getRecovery'>
}

type Deps = Pick<HandlerDeps, 'database' | 'clock' | 'hint'>

export function recoveryHandlers({ database, clock, hint }: Deps): RecoveryHandlers {
  const { knex } = database
  return {
    async redeliver({ account, path, query, body }) {
      const webhook = await getWebhookWithin(knex, await getLogScope(knex, account, query), path.webhookId)
      const eventId = eventIdOf(path.eventId)
      const allowSecondMessage = body.allowSecondMessage ?? false
      const queued = await database.transaction(async (trx) => {
        await redeliver(trx, webhook, eventId, allowSecondMessage, clock.now())
        // Behind the COMMIT it could fail, and say of what is done that it is not.
        return getDeliveryDetail(trx, webhook, path.eventId)
      })
      hint()
      const data = toDeliveryDetail(queued)
      return { status: 200, body: { success: true, message: 'Delivery queued again', data } }
    },

    async startRecovery({ account, query, body, idempotency }) {
      const since = recoveryStart(body.since, clock.now())
      const webhook = await getWebhookWithin(knex, await getLogScope(knex, account, query), body.webhookId)
      return inKeyedTransaction(database, idempotency, async (trx) => {
        const data = toRecoveryRow(await startRecovery(trx, webhook, since, clock.now()))
        return { status: 200, body: { success: true as const, message: 'Recovery started', data } }
      })
    },

    async getRecovery({ account, path, query }) {
      const { lab, scope } = await getLogScope(knex, account, query)
      const recovery = await findRecovery(knex, account.id, path.recoveryId)
      // One of another lab or party is as one that does not exist.
      const webhook = recovery && (await findLogWebhook(knex, account.id, lab.id, recovery.webhookId, scope))
      if (!webhook) throw notFound('recovery not found')
      return { status: 200, body: { success: true, message: 'Recovery', data: toRecoveryRow(recovery) } }
    },
  }
}
