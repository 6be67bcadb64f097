import { notFound } from '../errors.ts'
import type { AccountHandler, HandlerDeps } from '../handlers.ts'
import { getDeliveryDetail, getLogScope, getWebhookWithin } from './delivery-log-access.ts'
import { findMissedEvent, listMissedEvents } from './delivery-log-missed-repository.ts'
import { findEventBody, listDeliveries } from './delivery-log-repository.ts'
import { cursorOf, eventIdOf, logPageOf, missedPageOf } from './delivery-log-rules.ts'
import { toDeliveryDetail, toDeliveryRow, toMissedEventDetail, toMissedEventRow } from './delivery-log-rows.ts'

interface DeliveryLogHandlers {
  listDeliveries: AccountHandler<'listDeliveries'>
  getDelivery: AccountHandler<'getDelivery'>
  listMissedEvents: AccountHandler<'listMissedEvents'>
  getMissedEvent: AccountHandler<'getMissedEvent'>
}

export function deliveryLogHandlers({ database: { knex } }: Pick<HandlerDeps, 'database'>): DeliveryLogHandlers {
  return {
    async listDeliveries({ account, query }) {
      const page = logPageOf(query)
      const scope = await getLogScope(knex, account, query)
      const webhook = query.webhookId === undefined ? undefined : await getWebhookWithin(knex, scope, query.webhookId)
      const { deliveries, next } = await listDeliveries(knex, webhook ? { webhook } : scope, page)
      const data = deliveries.map(toDeliveryRow)
      const nextCursor = next && cursorOf(next)
      return { status: 200, body: { success: true, message: 'Deliveries', data, nextCursor } }
    },

    async getDelivery({ account, path, query }) {
      const webhook = await getWebhookWithin(knex, await getLogScope(knex, account, query), path.webhookId)
      const data = toDeliveryDetail(await getDeliveryDetail(knex, webhook, path.eventId))
      return { status: 200, body: { success: true, message: 'Delivery', data } }
    },

    async listMissedEvents({ account, query }) {
      const page = missedPageOf(query)
      const webhook = await getWebhookWithin(knex, await getLogScope(knex, account, query), query.webhookId)
      const { events, nextCursor } = await listMissedEvents(knex, webhook, page)
      const data = events.map((event) => toMissedEventRow(webhook.id, event))
      return { status: 200, body: { success: true, message: 'Missed events', data, nextCursor } }
    },

    async getMissedEvent({ account, path, query }) {
      const webhook = await getWebhookWithin(knex, await getLogScope(knex, account, query), path.webhookId)
      const eventId = eventIdOf(path.eventId)
      const event = eventId === undefined ? undefined : await findMissedEvent(knex, webhook, eventId)
      if (!event) throw notFound('missed event not found')
      const data = toMissedEventDetail(webhook.id, event, await findEventBody(knex, event.eventId))
      return { status: 200, body: { success: true, message: 'Missed event', data } }
    },
  }
}
