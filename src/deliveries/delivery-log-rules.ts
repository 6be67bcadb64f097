/**
 * The delivery log as it is paged through: newest event first. Pure.
 */
import { firstIdOf, isIdShaped, publicEventId } from '../ids.ts'
import { encodeCursor, pageById, pageOf, requireIds, type PageQuery } from '../paging.ts'
import { timeOf } from '../query-time.ts'

export type DeliveryStatus = 'pending' | 'delivered' | 'exhausted' | 'discarded'

/** One event for one webhook, as the log shows it. */
export interface LoggedDelivery {
  webhookId: string
  eventId: string
  type: string
  status: DeliveryStatus
  /** Attempts made so far. */
  attempts: number
  /** Of a pending delivery. */
  nextAttemptAt: Date | null
  /** Of one that has ended. */
  endedAt: Date | null
}

/** A place in the log: behind it are older events and, of the same event, smaller webhooks. */
export interface LogPosition {
  eventId: string
  webhookId: string
}

export interface LogFilters {
  status: DeliveryStatus | undefined
  type: string | undefined
  /** No event before this id. */
  fromId: string
}

export interface LogPageRequest extends LogFilters {
  limit: number
  /** Rows come behind it. */
  after: LogPosition
}

interface TimeQuery extends PageQuery {
  /** ISO 8601, held to the contract. */
  from?: string | undefined
  to?: string | undefined
}

export interface LogQuery extends TimeQuery {
  status?: DeliveryStatus | undefined
  type?: string | undefined
}

/** The place between an event with all its deliveries and the older ones: there is no smaller webhook. */
export function beforeEvent(eventId: string): LogPosition {
  return { eventId, webhookId: firstIdOf(0) }
}

/** Sorts behind every id. */
export const AFTER_ALL_IDS = '~'

/** @throws 400 for a malformed cursor */
export function logPageOf(query: LogQuery): LogPageRequest {
  const { limit, after } = pageOf(query, 2)
  const { fromId, toId } = idsOf(query)
  const [eventId, webhookId] = after ? requireIds(after) : []
  const isBeforeEnd = eventId !== undefined && eventId < toId
  const position = isBeforeEnd ? { eventId, webhookId: webhookId! } : beforeEvent(toId)
  return { limit, after: position, status: query.status, type: query.type, fromId }
}

export function cursorOf({ eventId, webhookId }: LogPosition): string {
  return encodeCursor([eventId, webhookId])
}

export interface MissedPageRequest {
  limit: number
  type: string | undefined
  fromId: string
  /** Only events before this id. */
  beforeId: string
}

/** @throws 400 for a malformed cursor */
export function missedPageOf(query: TimeQuery & { type?: string | undefined }): MissedPageRequest {
  const { limit, afterId = AFTER_ALL_IDS } = pageById(query)
  const { fromId, toId } = idsOf(query)
  return { limit, type: query.type, fromId, beforeId: afterId < toId ? afterId : toId }
}

function idsOf({ from, to }: TimeQuery): { fromId: string; toId: string } {
  return {
    fromId: from === undefined ? '' : firstIdOf(timeOf('from', from)),
    toId: to === undefined ? AFTER_ALL_IDS : firstIdOf(timeOf('to', to)),
  }
}

/** Newest event first, and within one event the newest webhook. */
export function newestFirst(a: LogPosition, b: LogPosition): number {
  if (a.eventId !== b.eventId) return a.eventId < b.eventId ? 1 : -1
  return a.webhookId < b.webhookId ? 1 : -1
}

/** @returns undefined for a text that is no event's public id */
export function eventIdOf(publicId: string): string | undefined {
  const id = publicId.slice(publicEventId('').length)
  return isIdShaped(id) && publicEventId(id) === publicId ? id : undefined
}
