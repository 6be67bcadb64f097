/**
 * Webhooks as the lists show them. Pure.
 */
import type { components } from '../generated/client.ts'
import type { DeactivatedWebhook, Webhook } from './webhooks-repository.ts'

type Schemas = components['schemas']

/** Absent, not null, where there is no party. */
export function toWebhookRow(webhook: Webhook): Schemas['WebhookRow'] {
  const { id, events, endpoint, corporateId, organizationId, createdAt, updatedAt } = webhook
  return {
    _id: id,
    events,
    endpoint,
    protocol: 'https',
    ...(corporateId === null ? {} : { corporateUser: corporateId }),
    ...(organizationId === null ? {} : { organization: organizationId }),
    createdAt: createdAt.toISOString(),
    updatedAt: updatedAt.toISOString(),
  }
}

export function toDeactivatedRow(webhook: DeactivatedWebhook): Schemas['DeactivatedWebhookRow'] {
  const { deactivatedAt, firstFailureAt, failedAttempts, lastError } = webhook
  return {
    ...toWebhookRow(webhook),
    deactivatedAt: deactivatedAt.toISOString(),
    firstFailureAt: firstFailureAt.toISOString(),
    failedAttempts,
    lastError,
  }
}
