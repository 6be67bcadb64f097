import { partyOfCall } from '../catalogue/party-rules.ts'
import { seal } from '../crypto.ts'
import { formatSecret } from '../deliveries/signature.ts'
import { badRequest, labForbidden, notFound } from '../errors.ts'
import { inKeyedTransaction } from '../idempotency/idempotency.ts'
import { newId } from '../ids.ts'
import type { AccountHandler, HandlerDeps } from '../handlers.ts'
import { refusedEndpoint } from './endpoint-address.ts'
import { getLab, requireParty } from './webhook-access.ts'
import { toWebhookRow } from './webhook-rows.ts'
import { duplicateWebhook, mergeEvents, overlapWarnings, scopeOf } from './webhook-rules.ts'
import {
  claimPartyEvents,
  claimWebhook,
  countOverlaps,
  insertWebhook,
  listActiveWebhooks,
  recordDeletion,
  type Webhook,
} from './webhooks-repository.ts'
import { newSigningKey } from './webhook-secrets-repository.ts'

interface WebhookHandlers {
  subscribeWebhook: AccountHandler<'subscribeWebhook'>
  listWebhooks: AccountHandler<'listWebhooks'>
  deleteWebhook: AccountHandler<'deleteWebhook'>
}

export function webhookHandlers({ database, clock, keys, addressPolicy, hint }: HandlerDeps): WebhookHandlers {
  const { knex } = database
  return {
    async subscribeWebhook({ account, body, idempotency }) {
      const party = partyOfCall(account.mode, body)
      const refusal = refusedEndpoint(body.endpoint, addressPolicy)
      if (refusal !== undefined) throw badRequest(refusal, 'endpoint_refused', 'endpoint')
      const lab = await getLab(knex, account, body.labID)
      if (!lab.active) throw labForbidden('labID')
      await requireParty(knex, account, party)

      const now = clock.now()
      const webhook: Webhook = {
        id: newId(now.getTime()),
        accountId: account.id,
        labId: lab.id,
        corporateId: party?.field === 'corporateUser' ? party.id : null,
        organizationId: party?.field === 'organization' ? party.id : null,
        endpoint: body.endpoint,
        events: mergeEvents(body.events),
        createdAt: now,
        updatedAt: now,
      }
      const key = newSigningKey()
      return inKeyedTransaction(database, idempotency, async (trx) => {
        await insertWebhook(trx, webhook, seal(keys, key, webhook.id))
        const taken = party ? await claimPartyEvents(trx, webhook, party.id) : []
        if (taken.length > 0) throw duplicateWebhook(taken, 'events')
        const warnings = party ? [] : overlapWarnings(webhook.events, await countOverlaps(trx, webhook))
        const data = {
          ...toWebhookRow(webhook),
          secret: formatSecret(key),
          ...(warnings.length > 0 ? { warnings } : {}),
        }
        return { status: 200, body: { success: true as const, message: 'Webhook registered', data } }
      })
    },

    async listWebhooks({ account, query }) {
      const party = partyOfCall(account.mode, query)
      const lab = await getLab(knex, account, query.labID)
      await requireParty(knex, account, party)
      const webhooks = await listActiveWebhooks(knex, account.id, lab.id, scopeOf(party))
      return { status: 200, body: { success: true, message: 'Active webhooks', data: webhooks.map(toWebhookRow) } }
    },

    async deleteWebhook({ account, path, query }) {
      const party = partyOfCall(account.mode, query)
      const lab = await getLab(knex, account, query.labID)
      await requireParty(knex, account, party)
      await database.transaction(async (trx) => {
        const webhook = await claimWebhook(trx, account.id, lab.id, path.id, scopeOf(party))
        if (!webhook) throw notFound('webhook not found')
        await recordDeletion(trx, webhook.id, clock.now())
      })
      // Its waiting messages go the normal way at once.
      hint()
      return { status: 200, body: { success: true, message: 'Webhook deleted' } }
    },
  }
}
