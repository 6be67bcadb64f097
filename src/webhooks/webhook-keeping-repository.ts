/**
 * An account's webhooks as the operator sees them: of every lab and party, with their health.
 */
import type { Knex } from 'knex'
import { isIdShaped } from '../ids.ts'
import { withEvents, type Webhook } from './webhooks-repository.ts'

export interface KeptWebhook extends Webhook {
  state: 'active' | 'auto_deleted' | 'deleted'
  firstFailureAt: Date | null
  failedAttempts: number
  lastError: string | null
  warnedAt: Date | null
  deactivatedAt: Date | null
}

/** What a list is narrowed to; left out: every webhook that was not deleted for good. */
export interface WebhookFilter {
  labId?: string | undefined
  state?: 'active' | 'auto_deleted' | undefined
  partyId?: string | undefined
  partyless?: boolean | undefined
  /** Active, and its last attempts have failed. */
  failing?: boolean | undefined
}

/** The oldest first. */
export async function listWebhooksOfAccount(
  knex: Knex,
  accountId: string,
  filter: WebhookFilter,
  afterId: string | undefined,
  limit: number,
): Promise<KeptWebhook[]> {
  const { labId, state, partyId, partyless, failing } = filter
  if ([labId, partyId].some((id) => id !== undefined && !isIdShaped(id))) return []
  const query = knex('webhooks')
    .where({ account_id: accountId })
    .whereIn('state', state === undefined ? ['active', 'auto_deleted'] : [state])
    .orderBy('id')
    .limit(limit)
  if (labId !== undefined) query.where({ lab_id: labId })
  if (partyId !== undefined)
    query.where((any) => any.where({ corporate_id: partyId }).orWhere({ organization_id: partyId }))
  if (partyless !== undefined)
    query.whereRaw(`COALESCE(corporate_id, organization_id) IS ${partyless ? '' : 'NOT '}NULL`)
  if (failing !== undefined) query.whereRaw(`(state = 'active' AND first_failure_at IS NOT NULL) = ?`, [failing])
  if (afterId !== undefined) query.where('id', '>', afterId)
  return withHealth(knex, await query)
}

/** Whatever its state, also when it was deleted for good. */
export async function findWebhookOfAccount(
  knex: Knex,
  accountId: string,
  webhookId: string,
): Promise<KeptWebhook | undefined> {
  if (!isIdShaped(webhookId)) return undefined
  const [webhook] = await withHealth(knex, await knex('webhooks').where({ account_id: accountId, id: webhookId }))
  return webhook
}

async function withHealth(knex: Knex, rows: Record<string, any>[]): Promise<KeptWebhook[]> {
  const webhooks = await withEvents(knex, rows)
  return webhooks.map((webhook, index) => {
    const row = rows[index]!
    return {
      ...webhook,
      state: row.state,
      firstFailureAt: row.first_failure_at,
      failedAttempts: row.failed_attempts,
      lastError: row.last_error,
      warnedAt: row.warned_at,
      deactivatedAt: row.deactivated_at,
    }
  })
}
