/**
 * Sending again by hand, for the lab's own people.
 */
import { findAccount } from '../accounts/accounts-repository.ts'
import { requireAccountOf, requireRole } from '../auth/operator-rules.ts'
import { notFound, unknownId } from '../errors.ts'
import { publicEventId } from '../ids.ts'
import { inKeyedTransaction } from '../idempotency/idempotency.ts'
import type { HandlerDeps, OperatorHandler } from '../handlers.ts'
import { getDeliveryDetail, getWebhookOfAccount } from './delivery-log-access.ts'
import { findLogWebhook } from './delivery-log-webhooks-repository.ts'
import { eventIdOf } from './delivery-log-rules.ts'
import { toDeliveryDetail, toRecoveryRow } from './delivery-log-rows.ts'
import { redeliver, startRecovery } from './recovery.ts'
import { findRecovery } from './recovery-repository.ts'
import { recoveryStart } from './recovery-rules.ts'

interface RecoveryOperatorHandlers {
  redeliverAccountDelivery: OperatorHandler<'redeliverAccountDelivery'>
  startAccountRecovery: OperatorHandler<'startAccountRecovery'>
  getAccountRecovery: OperatorHandler<'getAccountRecovery'>
}

type Deps = Pick<HandlerDeps, 'database' | 'clock' | 'hint'>

export function recoveryOperatorHandlers({ database, clock, hint }: Deps): RecoveryOperatorHandlers {
  const { knex } = database
  return {
    async redeliverAccountDelivery({ path, body, operator, audit }) {
      requireRole(operator, 'staff')
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const webhook = await getWebhookOfAccount(knex, account.id, path.webhookId)
      const eventId = eventIdOf(path.eventId)
      const queued = await database.transaction(async (trx) => {
        await redeliver(trx, webhook, eventId, body.allowSecondMessage ?? false, clock.now())
        await audit.record(trx, account.id, { webhookId: webhook.id, eventId: publicEventId(eventId!) })
        // Behind the COMMIT it could fail, and say of what is done that it is not.
        return getDeliveryDetail(trx, webhook, path.eventId)
      })
      hint()
      return { status: 200, body: toDeliveryDetail(queued) }
    },

    async startAccountRecovery({ path, body, operator, audit, idempotency }) {
      requireRole(operator, 'staff')
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const since = recoveryStart(body.since, clock.now())
      const webhook = await findLogWebhook(knex, account.id, undefined, body.webhookId, 'whole_lab')
      if (!webhook) throw unknownId('webhook', body.webhookId, 'webhookId')
      return inKeyedTransaction(database, idempotency, async (trx) => {
        const started = await startRecovery(trx, webhook, since, clock.now())
        await audit.record(trx, account.id, { webhookId: webhook.id, recoveryId: started.id })
        return { status: 201, body: toRecoveryRow(started) }
      })
    },

    async getAccountRecovery({ path, operator }) {
      requireRole(operator, 'staff')
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const recovery = await findRecovery(knex, account.id, path.recoveryId)
      if (!recovery) throw notFound('recovery not found')
      return { status: 200, body: toRecoveryRow(recovery) }
    },
  }
}
