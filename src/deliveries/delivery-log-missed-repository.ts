/**
 * Events of the times in which a webhook was auto-deleted: they have no delivery, and no operation makes one. They are found
 * by what routing would have asked, in windows of the lab's events, so that a page costs what it looks at.
 */
import type { Knex } from 'knex'
import { GETS_MESSAGE } from '../events/event-routing.ts'
import { isMessageIn } from '../events/message-payloads.ts'
import { firstIdOf } from '../ids.ts'
import { encodeCursor } from '../paging.ts'
import { AFTER_ALL_IDS, type MissedPageRequest } from './delivery-log-rules.ts'

/** Events that one page, or one step of counting, looks at. */
const MOST_EVENTS = 20_000
/** Times of inactivity that one page looks at. */
const MOST_RANGES = 50
/** An event's id is made by a process's view of the database's clock, a webhook's times by that clock itself. */
const CLOCK_MARGIN_MS = 600_000

export interface MissedEvent {
  eventId: string
  type: string
}

/**
 * Of an event `e` and a webhook `w` that are joined on the webhook's events: whether it was recorded while the webhook was
 * auto-deleted, and would have been routed to it. Of one that was then deleted for good the last change is that.
 */
const IS_MISSED = `
  (w.corporate_id IS NULL OR w.corporate_id = e.corporate_id)
  AND (w.organization_id IS NULL OR w.organization_id = e.doctor_id OR w.organization_id = e.hospital_id)
  AND (NOT (${isMessageIn('e.type')}) OR ${GETS_MESSAGE})
  AND ((e.recorded_at >= w.inactive_from
      AND (w.state = 'auto_deleted' OR (w.state = 'deleted' AND w.deactivated_at IS NOT NULL AND e.recorded_at < w.updated_at)))
    OR EXISTS (SELECT 1 FROM webhook_inactivity i WHERE i.webhook_id = w.id
               AND i.inactive_from <= e.recorded_at AND e.recorded_at < i.active_from))`

const FROM_WINDOW = `
  STRAIGHT_JOIN webhooks w ON w.id = ?
  STRAIGHT_JOIN webhook_events s ON s.webhook_id = w.id AND s.event_type = e.type`

interface IdRange {
  fromId: string
  /** Not itself in the range. */
  untilId: string
}

interface InactiveTime {
  inactive_from: Date
  /** By the clock as it was; null: ended before that was kept. */
  deactivated_at: Date | null
  /** Null: not yet. */
  active_from: Date | null
}

/**
 * Where the missed events of a webhook lie among the lab's, within these bounds, the one that begins last first. While the clock
 * is behind what was noted for the lab, `inactive_from` is ahead of the ids.
 */
async function listInactiveRanges(knex: Knex, webhookId: string, bounds: IdRange): Promise<IdRange[]> {
  const past: InactiveTime[] = await knex('webhook_inactivity').where({ webhook_id: webhookId })
  const last: InactiveTime[] = await knex('webhooks')
    .where({ id: webhookId })
    .whereRaw(`(state = 'auto_deleted' OR (state = 'deleted' AND deactivated_at IS NOT NULL))`)
    .select('inactive_from', 'deactivated_at', { active_from: knex.raw("IF(state = 'deleted', updated_at, NULL)") })
  return [...last, ...past]
    .map(({ inactive_from: from, deactivated_at: at, active_from: until }) => ({
      fromId: later(firstIdOf(Math.max(0, Math.min(+from, +(at ?? from)) - CLOCK_MARGIN_MS)), bounds.fromId),
      untilId: earlier(until ? firstIdOf(+until + CLOCK_MARGIN_MS) : AFTER_ALL_IDS, bounds.untilId),
    }))
    .filter(({ fromId, untilId }) => fromId < untilId)
    .sort((a, b) => (a.fromId < b.fromId ? 1 : a.fromId > b.fromId ? -1 : a.untilId < b.untilId ? 1 : -1))
}

const later = (a: string, b: string) => (a > b ? a : b)
const earlier = (a: string, b: string) => (a < b ? a : b)

export interface MissedPage {
  events: MissedEvent[]
  nextCursor: string | null
}

/**
 * Missed events of a webhook, the newest first. A page may be short while `nextCursor` is not null.
 * @param webhook of an account and lab that the caller may see
 */
export async function listMissedEvents(
  knex: Knex,
  webhook: { id: string; labId: string },
  page: MissedPageRequest,
): Promise<MissedPage> {
  const events: MissedEvent[] = []
  const bounds = { fromId: page.fromId, untilId: page.beforeId }
  let untilId = page.beforeId
  for (const [index, range] of (await listInactiveRanges(knex, webhook.id, bounds)).entries()) {
    if (index === MOST_RANGES) return { events, nextCursor: encodeCursor([untilId]) }
    // Times that lie close together overlap by the margin: what was read for one is left out of the next.
    const rest = { fromId: range.fromId, untilId: earlier(range.untilId, untilId) }
    const floor = await findNth(knex, webhook.labId, rest, MOST_EVENTS)
    const window = { ...rest, fromId: floor ?? rest.fromId }
    events.push(...(await readMissed(knex, webhook, window, page.type, page.limit + 1 - events.length)))
    if (events.length > page.limit) {
      const shown = events.slice(0, page.limit)
      return { events: shown, nextCursor: encodeCursor([shown.at(-1)!.eventId]) }
    }
    if (floor !== undefined) return { events, nextCursor: encodeCursor([floor]) }
    untilId = earlier(untilId, range.fromId)
  }
  return { events, nextCursor: null }
}

async function findNth(
  knex: Knex,
  labId: string,
  { fromId, untilId }: IdRange,
  n: number,
): Promise<string | undefined> {
  const [rows] = await knex.raw(
    'SELECT id FROM events WHERE lab_id = ? AND id >= ? AND id < ? ORDER BY id DESC LIMIT 1 OFFSET ?',
    [labId, fromId, untilId, n - 1],
  )
  return rows[0]?.id
}

async function readMissed(
  knex: Knex,
  webhook: { id: string; labId: string },
  { fromId, untilId }: IdRange,
  type: string | undefined,
  limit: number,
): Promise<MissedEvent[]> {
  const [rows] = await knex.raw(
    `SELECT e.id, e.type FROM events e ${FROM_WINDOW}
     WHERE e.lab_id = ? AND e.id >= ? AND e.id < ? AND ${IS_MISSED} ${type === undefined ? '' : 'AND e.type = ?'}
     ORDER BY e.id DESC LIMIT ?`,
    [webhook.id, webhook.labId, fromId, untilId, ...(type === undefined ? [] : [type]), limit],
  )
  return (rows as Record<string, unknown>[]).map((row) => ({
    eventId: row.id as string,
    type: row.type as string,
  }))
}

export async function findMissedEvent(
  knex: Knex,
  webhook: { id: string; labId: string },
  eventId: string,
): Promise<MissedEvent | undefined> {
  const [rows] = await knex.raw(
    `SELECT e.id, e.type FROM events e ${FROM_WINDOW} WHERE e.id = ? AND e.lab_id = ? AND ${IS_MISSED}`,
    [webhook.id, eventId, webhook.labId],
  )
  return rows[0] && { eventId: rows[0].id, type: rows[0].type }
}

/**
 * Counts missed events in steps, the oldest first.
 * @param after the last event that was looked at
 * @returns `lookedTo`: the last one looked at now; null: there are no more up to `untilId`
 */
export async function countMissedEvents(
  knex: Knex,
  webhook: { id: string; labId: string },
  { after, untilId }: { after: string; untilId: string },
): Promise<{ missed: number; lookedTo: string | null }> {
  const ranges = await listInactiveRanges(knex, webhook.id, { fromId: after, untilId })
  const oldest = ranges.at(-1)
  if (!oldest) return { missed: 0, lookedTo: null }
  const fromId = later(oldest.fromId, after)
  const [ends] = await knex.raw(
    'SELECT id FROM events WHERE lab_id = ? AND id >= ? AND id > ? AND id < ? ORDER BY id LIMIT 1 OFFSET ?',
    [webhook.labId, fromId, after, oldest.untilId, MOST_EVENTS - 1],
  )
  const lookedTo: string = ends[0]?.id ?? oldest.untilId
  const [rows] = await knex.raw(
    `SELECT COUNT(*) AS missed FROM events e ${FROM_WINDOW}
     WHERE e.lab_id = ? AND e.id >= ? AND e.id > ? AND e.id <= ? AND e.id < ? AND ${IS_MISSED}`,
    [webhook.id, webhook.labId, fromId, after, lookedTo, oldest.untilId],
  )
  return { missed: Number(rows[0].missed), lookedTo }
}
