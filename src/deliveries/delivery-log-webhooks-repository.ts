/**
 * Webhooks as the delivery log sees them: also those that are gone, whose log outlives them.
 */
import type { Knex } from 'knex'
import { isIdShaped } from '../ids.ts'
import type { WebhookScope } from '../webhooks/webhook-rules.ts'
import { withinScope } from '../webhooks/webhooks-repository.ts'

/** A webhook whose log is read, in whatever state it is. */
export interface LogWebhook {
  id: string
  accountId: string
  labId: string
  endpoint: string
  state: 'active' | 'auto_deleted' | 'deleted'
}

const WEBHOOK_COLUMNS = ['id', 'account_id', 'lab_id', 'endpoint', 'state']

/** @param labId undefined: any lab of the account */
export async function findLogWebhook(
  knex: Knex,
  accountId: string,
  labId: string | undefined,
  webhookId: string,
  scope: WebhookScope,
): Promise<LogWebhook | undefined> {
  if (!isIdShaped(webhookId)) return undefined
  const row = await knex('webhooks')
    .where({ id: webhookId, account_id: accountId, ...(labId === undefined ? {} : { lab_id: labId }) })
    .modify(withinScope, scope)
    .first(WEBHOOK_COLUMNS)
  return row && toLogWebhook(row)
}

function toLogWebhook(row: Record<string, unknown>): LogWebhook {
  return {
    id: row.id as string,
    accountId: row.account_id as string,
    labId: row.lab_id as string,
    endpoint: row.endpoint as string,
    state: row.state as LogWebhook['state'],
  }
}
