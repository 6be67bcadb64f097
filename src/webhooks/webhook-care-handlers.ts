/**
 * What an integrator does to keep a webhook well: a new secret, a test.
 */
import { partyOfCall } from '../catalogue/party-rules.ts'
import { seal } from '../crypto.ts'
import { insertTestDelivery } from '../deliveries/delivery-queue-repository.ts'
import { askToReadSettings, makeLaneDue } from '../deliveries/lanes-repository.ts'
import { untilSettingsAreRead } from '../deliveries/settings-wait.ts'
import { formatSecret } from '../deliveries/signature.ts'
import { notFound } from '../errors.ts'
import { webhookTest } from '../events/event-types.ts'
import { recordTestEvent } from '../events/events-repository.ts'
import { newId, publicEventId } from '../ids.ts'
import type { AccountHandler, HandlerDeps } from '../handlers.ts'
import { getLab, requireParty } from './webhook-access.ts'
import { toWebhookRow } from './webhook-rows.ts'
import { scopeOf } from './webhook-rules.ts'
import { newSigningKey, recordRotation } from './webhook-secrets-repository.ts'
import { claimWebhook } from './webhooks-repository.ts'

/** A day: as long as a delivery may wait for its last retry. */
const DEFAULT_GRACE_SECONDS = 86_400

interface WebhookCareHandlers {
  rotateWebhookSecret: AccountHandler<'rotateWebhookSecret'>
  sendTestEvent: AccountHandler<'sendTestEvent'>
}

type Deps = Pick<HandlerDeps, 'database' | 'clock' | 'keys' | 'hint'>

export function webhookCareHandlers({ database, clock, keys, hint }: Deps): WebhookCareHandlers {
  const { knex } = database
  return {
    async rotateWebhookSecret({ account, path, query, body }) {
      const party = partyOfCall(account.mode, query)
      const lab = await getLab(knex, account, query.labID)
      await requireParty(knex, account, party)
      const graceMs = (body.graceSeconds ?? DEFAULT_GRACE_SECONDS) * 1000
      const key = newSigningKey()
      const rotated = await database.transaction(async (trx) => {
        const webhook = await claimWebhook(trx, account.id, lab.id, path.id, scopeOf(party))
        if (!webhook) throw notFound('webhook not found')
        const now = clock.now()
        const previousExpiresAt = new Date(now.getTime() + graceMs)
        const moved = await recordRotation(trx, webhook, seal(keys, key, webhook.id), previousExpiresAt, now)
        await askToReadSettings(trx, webhook.id, moved.updatedAt)
        return { webhook: { ...webhook, ...moved }, previousExpiresAt }
      })
      hint('settings')
      await untilSettingsAreRead(knex, path.id)
      const data = {
        ...toWebhookRow(rotated.webhook),
        secret: formatSecret(key),
        previousSecretExpiresAt: rotated.previousExpiresAt.toISOString(),
      }
      return { status: 200, body: { success: true, message: 'Secret rotated', data } }
    },

    async sendTestEvent({ account, path, query }) {
      const party = partyOfCall(account.mode, query)
      const lab = await getLab(knex, account, query.labID)
      await requireParty(knex, account, party)
      const eventId = newId(clock.nowMs())
      const { endpoint } = await database.transaction(async (trx) => {
        const webhook = await claimWebhook(trx, account.id, lab.id, path.id, scopeOf(party), ['active'])
        if (!webhook) throw notFound('webhook not found')
        const now = clock.now()
        await recordTestEvent(trx, webhookTest(eventId, webhook, now))
        await insertTestDelivery(trx, { webhookId: webhook.id, eventId, dueAt: now, epoch: webhook.epoch })
        await makeLaneDue(trx, webhook.id, now)
        return webhook
      })
      hint()
      const data = { eventId: publicEventId(eventId), endpoint }
      return { status: 200, body: { success: true, message: 'Test event queued', data } }
    },
  }
}
