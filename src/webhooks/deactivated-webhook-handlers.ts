import { optionalPartyOfCall } from '../catalogue/party-rules.ts'
import { notFound } from '../errors.ts'
import type { AccountHandler, HandlerDeps } from '../handlers.ts'
import { getLab, requireParty } from './webhook-access.ts'
import { toDeactivatedRow, toWebhookRow } from './webhook-rows.ts'
import { duplicateWebhook, scopeOfOptional } from './webhook-rules.ts'
import { claimPartyEvents, claimWebhook, listDeactivatedWebhooks, recordReactivation } from './webhooks-repository.ts'

interface DeactivatedWebhookHandlers {
  listDeactivatedWebhooks: AccountHandler<'listDeactivatedWebhooks'>
  reactivateWebhook: AccountHandler<'reactivateWebhook'>
}

type Deps = Pick<HandlerDeps, 'database' | 'clock' | 'hint'>

export function deactivatedWebhookHandlers({ database, clock, hint }: Deps): DeactivatedWebhookHandlers {
  const { knex } = database
  return {
    async listDeactivatedWebhooks({ account, query }) {
      const party = optionalPartyOfCall(account.mode, query)
      const lab = await getLab(knex, account, query.labID)
      await requireParty(knex, account, party)
      const webhooks = await listDeactivatedWebhooks(knex, account.id, lab.id, scopeOfOptional(account.mode, party))
      return {
        status: 200,
        body: { success: true, message: 'Auto-deleted webhooks', data: webhooks.map(toDeactivatedRow) },
      }
    },

    async reactivateWebhook({ account, path, query }) {
      const party = optionalPartyOfCall(account.mode, query)
      const lab = await getLab(knex, account, query.labID)
      await requireParty(knex, account, party)
      const scope = scopeOfOptional(account.mode, party)
      const webhook = await database.transaction(async (trx) => {
        const claimed = await claimWebhook(trx, account.id, lab.id, path._id, scope, ['auto_deleted'])
        if (!claimed) throw notFound('auto-deleted webhook not found')
        const now = clock.now()
        await recordReactivation(trx, claimed.id, now)
        const partyId = claimed.corporateId ?? claimed.organizationId
        const taken = partyId === null ? [] : await claimPartyEvents(trx, claimed, partyId)
        if (taken.length > 0) throw duplicateWebhook(taken, '_id')
        return { ...claimed, updatedAt: now }
      })
      // Its lane discards what waited when it was deleted.
      hint()
      return { status: 200, body: { success: true, message: 'Webhook reactivated', data: toWebhookRow(webhook) } }
    },
  }
}
