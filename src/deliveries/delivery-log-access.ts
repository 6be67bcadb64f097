/**
 * Which webhooks' logs a call reaches: for integrators by the party rules of the list of webhooks, for operators all of an
 * account. Deleted webhooks count: their log outlives them.
 */
import type { Knex } from 'knex'
import type { Account } from '../accounts/accounts-repository.ts'
import type { Lab } from '../catalogue/labs-repository.ts'
import { partyOfCall, type PartyParameters } from '../catalogue/party-rules.ts'
import { notFound } from '../errors.ts'
import { getLab, requireParty } from '../webhooks/webhook-access.ts'
import { scopeOf, type WebhookScope } from '../webhooks/webhook-rules.ts'
import { findDelivery, findEventBody, listAttempts, type LoggedAttempt } from './delivery-log-repository.ts'
import { findLogWebhook, type LogWebhook } from './delivery-log-webhooks-repository.ts'
import { eventIdOf, type LoggedDelivery } from './delivery-log-rules.ts'

/** What an integrator's call names. */
export interface LogScope {
  accountId: string
  lab: Lab
  scope: WebhookScope
}

/** @throws 400 and 403 as the list of webhooks does */
export async function getLogScope(
  knex: Knex,
  account: Account,
  query: PartyParameters & { labID: string },
): Promise<LogScope> {
  const party = partyOfCall(account.mode, query)
  const lab = await getLab(knex, account, query.labID)
  await requireParty(knex, account, party)
  return { accountId: account.id, lab, scope: scopeOf(party) }
}

/** @throws 404 for a webhook that is not in it */
export async function getWebhookWithin(
  knex: Knex,
  { accountId, lab, scope }: LogScope,
  webhookId: string,
): Promise<LogWebhook> {
  return required(await findLogWebhook(knex, accountId, lab.id, webhookId, scope))
}

/** For operators. @throws 404 for a webhook that the account does not have */
export async function getWebhookOfAccount(knex: Knex, accountId: string, webhookId: string): Promise<LogWebhook> {
  return required(await findLogWebhook(knex, accountId, undefined, webhookId, 'whole_lab'))
}

function required(webhook: LogWebhook | undefined): LogWebhook {
  if (!webhook) throw notFound('webhook not found')
  return webhook
}

export interface DeliveryDetail {
  delivery: LoggedDelivery
  attempts: LoggedAttempt[]
  /** Undefined: not kept any more. */
  body: Buffer | undefined
}

/** @throws 404 where the webhook has no delivery of such an event */
export async function getDeliveryDetail(knex: Knex, webhook: LogWebhook, publicId: string): Promise<DeliveryDetail> {
  const eventId = eventIdOf(publicId)
  const delivery = eventId === undefined ? undefined : await findDelivery(knex, webhook.id, eventId)
  if (!delivery) throw notFound('delivery not found')
  const attempts = await listAttempts(knex, webhook.id, delivery.eventId)
  return { delivery, attempts, body: await findEventBody(knex, delivery.eventId) }
}
