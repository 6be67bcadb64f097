/**
 * Webhooks as the operator keeps them: it reaches those without a party on a party-scoped account, too, which their integrator
 * does not (decisions 4).
 */
import type { Knex } from 'knex'
import { findAccount } from '../accounts/accounts-repository.ts'
import { requireAccountOf, requireRole } from '../auth/operator-rules.ts'
import { toFlag } from '../catalogue/catalogue-filters.ts'
import { findLab } from '../catalogue/labs-repository.ts'
import { seal } from '../crypto.ts'
import { formatSecret } from '../deliveries/signature.ts'
import { badRequest, conflict, labInactive, notFound, unknownId } from '../errors.ts'
import type { components } from '../generated/operator.ts'
import { newId } from '../ids.ts'
import { inKeyedTransaction } from '../idempotency/idempotency.ts'
import type { HandlerDeps, OperatorHandler } from '../handlers.ts'
import { cutPage, pageById } from '../paging.ts'
import { refusedEndpoint } from './endpoint-address.ts'
import { findWebhookOfAccount, listWebhooksOfAccount, type KeptWebhook } from './webhook-keeping-repository.ts'
import { duplicateWebhook, mergeEvents } from './webhook-rules.ts'
import { newSigningKey } from './webhook-secrets-repository.ts'
import {
  claimPartyEvents,
  claimWebhook,
  insertWebhook,
  recordDeletion,
  recordReactivation,
} from './webhooks-repository.ts'

interface WebhookKeepingHandlers {
  listAccountWebhooks: OperatorHandler<'listAccountWebhooks'>
  createAccountWebhook: OperatorHandler<'createAccountWebhook'>
  deleteAccountWebhook: OperatorHandler<'deleteAccountWebhook'>
  reactivateAccountWebhook: OperatorHandler<'reactivateAccountWebhook'>
}

export function webhookKeepingHandlers({
  database,
  clock,
  keys,
  addressPolicy,
  hint,
}: HandlerDeps): WebhookKeepingHandlers {
  const { knex } = database
  return {
    async listAccountWebhooks({ path, query, operator }) {
      requireRole(operator, 'staff')
      const { limit, afterId } = pageById(query)
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const filter = {
        labId: query.labID,
        state: query.state,
        partyId: query.partyId,
        partyless: toFlag(query.partyless),
        failing: toFlag(query.failing),
      }
      const rows = await listWebhooksOfAccount(knex, account.id, filter, afterId, limit + 1)
      const { shown, nextCursor } = cutPage(rows, limit, ({ id }) => [id])
      return { status: 200, body: { webhooks: shown.map(toKeptRow), nextCursor } }
    },

    async createAccountWebhook({ path, body, operator, audit, idempotency }) {
      requireRole(operator, 'admin')
      const refusal = refusedEndpoint(body.endpoint, addressPolicy)
      if (refusal !== undefined) throw badRequest(refusal, 'endpoint_refused', 'endpoint')
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const lab = await findLab(knex, account.id, body.labID)
      if (!lab) throw unknownId('lab', body.labID, 'labID')
      if (!lab.active) throw labInactive()
      const now = clock.now()
      const id = newId(now.getTime())
      const key = newSigningKey()
      return inKeyedTransaction(database, idempotency, async (trx) => {
        const events = mergeEvents(body.events)
        const { endpoint } = body
        const settings = { id, accountId: account.id, labId: lab.id, endpoint, events, createdAt: now, updatedAt: now }
        await insertWebhook(trx, { ...settings, corporateId: null, organizationId: null }, seal(keys, key, id))
        await audit.record(trx, account.id, { labID: lab.id, webhookId: id })
        const webhook = await getWebhook(trx, account.id, id)
        return { status: 201, body: { webhook: toKeptRow(webhook), secret: formatSecret(key) } }
      })
    },

    async deleteAccountWebhook({ path, operator, audit }) {
      requireRole(operator, 'admin')
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const { labId } = await getWebhook(knex, account.id, path.webhookId)
      const webhook = await database.transaction(async (trx) => {
        const claimed = await claimWebhook(trx, account.id, labId, path.webhookId, 'whole_lab')
        if (!claimed) throw notFound('webhook not found')
        await recordDeletion(trx, claimed.id, clock.now())
        await audit.record(trx, account.id, { labID: labId, webhookId: claimed.id })
        return getWebhook(trx, account.id, claimed.id)
      })
      // Its waiting messages go the normal way at once.
      hint()
      return { status: 200, body: toKeptRow(webhook) }
    },

    async reactivateAccountWebhook({ path, operator, audit }) {
      requireRole(operator, 'admin')
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const { labId } = await getWebhook(knex, account.id, path.webhookId)
      const webhook = await database.transaction(async (trx) => {
        const claimed = await claimWebhook(trx, account.id, labId, path.webhookId, 'whole_lab', ['auto_deleted'])
        if (!claimed) throw await refusedReactivation(trx, account.id, path.webhookId)
        await recordReactivation(trx, claimed.id, clock.now())
        const partyId = claimed.corporateId ?? claimed.organizationId
        const taken = partyId === null ? [] : await claimPartyEvents(trx, claimed, partyId)
        if (taken.length > 0) throw duplicateWebhook(taken, '_id')
        await audit.record(trx, account.id, { labID: labId, webhookId: claimed.id })
        return getWebhook(trx, account.id, claimed.id)
      })
      // Its lane discards what waited when it was deleted.
      hint()
      return { status: 200, body: toKeptRow(webhook) }
    },
  }
}

/** @throws 404 when the account has no such webhook */
async function getWebhook(knex: Knex, accountId: string, webhookId: string): Promise<KeptWebhook> {
  const webhook = await findWebhookOfAccount(knex, accountId, webhookId)
  if (!webhook) throw notFound('webhook not found')
  return webhook
}

async function refusedReactivation(knex: Knex, accountId: string, webhookId: string) {
  const { state } = await getWebhook(knex, accountId, webhookId)
  if (state === 'deleted') return notFound('webhook not found')
  return conflict('the webhook is active: only an auto-deleted one can be reactivated', 'invalid_state')
}

/** The party's fields are absent, not null, where there is none. */
function toKeptRow(webhook: KeptWebhook): components['schemas']['OperatorWebhook'] {
  const { id, labId, state, events, endpoint, corporateId, organizationId } = webhook
  return {
    webhookId: id,
    labID: labId,
    state,
    events,
    endpoint,
    ...(corporateId === null ? {} : { corporateUser: corporateId }),
    ...(organizationId === null ? {} : { organization: organizationId }),
    createdAt: webhook.createdAt.toISOString(),
    updatedAt: webhook.updatedAt.toISOString(),
    firstFailureAt: webhook.firstFailureAt?.toISOString() ?? null,
    failedAttempts: webhook.failedAttempts,
    lastError: webhook.lastError,
    warnedAt: webhook.warnedAt?.toISOString() ?? null,
    deactivatedAt: webhook.deactivatedAt?.toISOString() ?? null,
  }
}
