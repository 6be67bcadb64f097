/**
 * The delivery log for the lab's own people: every webhook of an account, whatever its party.
 */
import { findAccount } from '../accounts/accounts-repository.ts'
import { requireAccountOf, requireRole } from '../auth/operator-rules.ts'
import { findLab } from '../catalogue/labs-repository.ts'
import { badRequest, notFound } from '../errors.ts'
import type { HandlerDeps, OperatorHandler } from '../handlers.ts'
import { getDeliveryDetail, getWebhookOfAccount } from './delivery-log-access.ts'
import { findMissedEvent, listMissedEvents } from './delivery-log-missed-repository.ts'
import { findEventBody, listDeliveries, type LogSubject } from './delivery-log-repository.ts'
import { cursorOf, eventIdOf, logPageOf, missedPageOf } from './delivery-log-rules.ts'
import { toDeliveryDetail, toDeliveryRow, toMissedEventDetail, toMissedEventRow } from './delivery-log-rows.ts'

interface DeliveryLogOperatorHandlers {
  listAccountDeliveries: OperatorHandler<'listAccountDeliveries'>
  getAccountDelivery: OperatorHandler<'getAccountDelivery'>
  listAccountMissedEvents: OperatorHandler<'listAccountMissedEvents'>
  getAccountMissedEvent: OperatorHandler<'getAccountMissedEvent'>
}

type Deps = Pick<HandlerDeps, 'database'>

export function deliveryLogOperatorHandlers({ database: { knex } }: Deps): DeliveryLogOperatorHandlers {
  async function subjectOf(accountId: string, labId?: string, webhookId?: string): Promise<LogSubject> {
    const lab = labId === undefined ? undefined : await findLab(knex, accountId, labId)
    if (labId !== undefined && !lab) throw notFound('lab not found')
    const webhook = webhookId === undefined ? undefined : await getWebhookOfAccount(knex, accountId, webhookId)
    if (webhook && lab && webhook.labId !== lab.id) throw notFound('webhook not found')
    if (webhook) return { webhook }
    if (lab) return { lab, scope: 'whole_lab' }
    throw badRequest('labID or webhookId is required', 'invalid_request', 'labID')
  }

  return {
    async listAccountDeliveries({ path, query, operator }) {
      requireRole(operator, 'staff')
      const page = logPageOf(query)
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const subject = await subjectOf(account.id, query.labID, query.webhookId)
      const { deliveries, next } = await listDeliveries(knex, subject, page)
      return { status: 200, body: { deliveries: deliveries.map(toDeliveryRow), nextCursor: next && cursorOf(next) } }
    },

    async getAccountDelivery({ path, operator }) {
      requireRole(operator, 'staff')
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const webhook = await getWebhookOfAccount(knex, account.id, path.webhookId)
      return { status: 200, body: toDeliveryDetail(await getDeliveryDetail(knex, webhook, path.eventId)) }
    },

    async listAccountMissedEvents({ path, query, operator }) {
      requireRole(operator, 'staff')
      const page = missedPageOf(query)
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const webhook = await getWebhookOfAccount(knex, account.id, query.webhookId)
      const { events, nextCursor } = await listMissedEvents(knex, webhook, page)
      return {
        status: 200,
        body: { missedEvents: events.map((event) => toMissedEventRow(webhook.id, event)), nextCursor },
      }
    },

    async getAccountMissedEvent({ path, operator }) {
      requireRole(operator, 'staff')
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const webhook = await getWebhookOfAccount(knex, account.id, path.webhookId)
      const eventId = eventIdOf(path.eventId)
      const event = eventId === undefined ? undefined : await findMissedEvent(knex, webhook, eventId)
      if (!event) throw notFound('missed event not found')
      return { status: 200, body: toMissedEventDetail(webhook.id, event, await findEventBody(knex, event.eventId)) }
    },
  }
}
