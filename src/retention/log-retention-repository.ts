/**
 * Removes what the delivery log keeps for a time: payloads, ended deliveries with their attempts, events, deleted webhooks.
 *
 * Each batch locks the rows that it is about first and asks afterwards what must stay, with a fresh view. Whoever makes an
 * ended delivery pending again (sending it again by hand) locks its event's payload before: either the purge leaves it, or
 * the payload is gone before anything waits for it.
 */
import type { Knex } from 'knex'
import { firstIdOf } from '../ids.ts'
import type { Batch, Position, PurgeStep } from './purge-step.ts'
import { isOfCurrentPeriod, type Cutoffs } from './retention-rules.ts'

export function logPurgeSteps(cutoffs: Cutoffs): PurgeStep[] {
  return [
    { name: 'payloads', remove: (trx, after, limit) => removePayloads(trx, cutoffs.payloads, after, limit) },
    { name: 'deliveries', remove: (trx, after, limit) => removeDeliveries(trx, cutoffs.log, after, limit) },
    { name: 'events', remove: (trx, after, limit) => removeEvents(trx, cutoffs.log, after, limit) },
    { name: 'webhooks', remove: (trx, after, limit) => removeWebhooks(trx, cutoffs.log, after, limit) },
  ]
}

/** The body of an event that no delivery waits for any more. Its deliveries stay in the log. */
async function removePayloads(
  trx: Knex.Transaction,
  before: Date,
  after: Position | undefined,
  limit: number,
): Promise<Batch> {
  const rows = await trx('event_bodies')
    .where('event_id', '>', after?.[0] ?? '')
    .where('event_id', '<', firstIdOf(before.getTime()))
    .orderBy('event_id')
    .limit(limit)
    .forUpdate()
    .skipLocked()
    .select('event_id')
  const eventIds = rows.map((row) => row.event_id as string)
  const waiting = await listPendingEvents(trx, eventIds)
  const removed = await trx('event_bodies').whereIn('event_id', withoutAll(eventIds, waiting)).delete()
  return { looked: eventIds.length, removed, position: eventIds.slice(-1) }
}

/**
 * Ended deliveries, each with its attempts, so that the log never shows one without the other. Stay: one that is sent again
 * right now, and those of a failing webhook's current period.
 */
async function removeDeliveries(
  trx: Knex.Transaction,
  before: Date,
  after: Position | undefined,
  limit: number,
): Promise<Batch> {
  // No delivery ends before its event has an id. By webhook, so that the log needs no key by time, which each delivery would pay for.
  const beforeId = firstIdOf(before.getTime())
  const webhookId = (after?.[0] as string | undefined) ?? (await nextWebhookWithEvents(trx, '', beforeId))
  if (webhookId === undefined) return { looked: 0, removed: 0, position: undefined }
  const [rows] = await trx.raw(
    `SELECT webhook_id, event_id, ended_at FROM deliveries
     WHERE webhook_id = ? AND event_id > ? AND event_id < ? AND ended_at < ? ORDER BY event_id LIMIT ? FOR UPDATE SKIP LOCKED`,
    [webhookId, after?.[1] ?? '', beforeId, before, limit],
  )
  const deliveries = rows as { webhook_id: string; event_id: string; ended_at: Date }[]
  const removed = deliveries.length > 0 ? await removeUnlessNeeded(trx, deliveries) : 0
  const looked = deliveries.length
  if (looked === limit) return { looked, removed, position: [webhookId, deliveries.at(-1)!.event_id] }
  const nextId = await nextWebhookWithEvents(trx, webhookId, beforeId)
  return { looked, removed, position: [nextId ?? webhookId, ''], more: nextId !== undefined }
}

/** The next webhook that has events of so long ago in the log: a jump through the primary key for each that has none. */
async function nextWebhookWithEvents(
  trx: Knex.Transaction,
  afterId: string,
  beforeEventId: string,
): Promise<string | undefined> {
  const [rows] = await trx.raw(
    `SELECT webhook_id, MIN(event_id) AS oldest FROM deliveries FORCE INDEX FOR GROUP BY (PRIMARY) WHERE webhook_id > ?
     GROUP BY webhook_id HAVING oldest < ? ORDER BY webhook_id LIMIT 1`,
    [afterId, beforeEventId],
  )
  return rows[0]?.webhook_id
}

async function removeUnlessNeeded(
  trx: Knex.Transaction,
  deliveries: { webhook_id: string; event_id: string; ended_at: Date }[],
): Promise<number> {
  const webhookIds = [...new Set(deliveries.map((row) => row.webhook_id))]
  const eventIds = [...new Set(deliveries.map((row) => row.event_id))]
  const busy = await listBusyEvents(trx, eventIds)
  const queued = await trx('delivery_queue').whereIn('event_id', eventIds).select('webhook_id', 'event_id')
  const pending = new Set(queued.map((row) => `${row.webhook_id} ${row.event_id}`))
  const failing = await trx('webhooks')
    .whereIn('id', webhookIds)
    .where({ state: 'active' })
    .whereNotNull('first_failure_at')
    .select('id', 'first_failure_at')
  const firstFailures = new Map(failing.map((row) => [row.id as string, row.first_failure_at as Date]))
  const expired = deliveries.filter((row) => {
    const firstFailureAt = firstFailures.get(row.webhook_id)
    if (firstFailureAt && isOfCurrentPeriod(row.ended_at, firstFailureAt)) return false
    return !busy.has(row.event_id) && !pending.has(`${row.webhook_id} ${row.event_id}`)
  })
  if (expired.length > 0) {
    await deleteByDelivery(trx, 'earlier_attempts', expired)
    await deleteByDelivery(trx, 'deliveries', expired)
  }
  return expired.length
}

/** Joined to the list, in this order, each row being one range of the primary key: as the recorder does, for the same reason. */
async function deleteByDelivery(
  trx: Knex.Transaction,
  table: 'earlier_attempts' | 'deliveries',
  rows: { webhook_id: string; event_id: string }[],
): Promise<void> {
  const keys = rows.map(() => 'SELECT CONVERT(? USING ascii) AS webhook_id, CONVERT(? USING ascii) AS event_id')
  await trx.raw(
    `DELETE t FROM (${keys.join(' UNION ALL ')}) old
     STRAIGHT_JOIN ${table} t ON t.webhook_id = old.webhook_id AND t.event_id = old.event_id`,
    rows.flatMap((row) => [row.webhook_id, row.event_id]),
  )
}

/** Events that nothing in the log and nothing that waits belongs to. */
async function removeEvents(
  trx: Knex.Transaction,
  before: Date,
  after: Position | undefined,
  limit: number,
): Promise<Batch> {
  const rows = await trx('events')
    .where('id', '>', after?.[0] ?? '')
    .where('id', '<', firstIdOf(before.getTime()))
    .orderBy('id')
    .limit(limit)
    .forUpdate()
    .skipLocked()
    .select('id')
  const eventIds = rows.map((row) => row.id as string)
  const busy = await listBusyEvents(trx, eventIds)
  const waiting = new Set([...busy, ...(await listPendingEvents(trx, eventIds))])
  for (const id of await listLoggedEvents(trx, eventIds)) waiting.add(id)
  const expired = withoutAll(eventIds, waiting)
  for (const table of ['event_bodies', 'messages', 'erased_events'])
    await trx(table).whereIn('event_id', expired).delete()
  const removed = await trx('events').whereIn('id', expired).delete()
  return { looked: eventIds.length, removed, position: eventIds.slice(-1) }
}

/** Of these events those with an ended delivery: by the webhooks of their lab, each look-up a whole primary key. */
async function listLoggedEvents(trx: Knex.Transaction, eventIds: string[]): Promise<string[]> {
  if (eventIds.length === 0) return []
  const [rows] = await trx.raw(
    `SELECT DISTINCT e.id FROM events e STRAIGHT_JOIN webhooks w ON w.account_id = e.account_id AND w.lab_id = e.lab_id
       STRAIGHT_JOIN deliveries d ON d.webhook_id = w.id AND d.event_id = e.id
     WHERE e.id IN (?)`,
    [eventIds],
  )
  return (rows as { id: string }[]).map((row) => row.id)
}

/**
 * Of these events those whose payload somebody else has locked, because a delivery is about to be sent again. The others' are
 * ours from here on. Most have none any more.
 */
async function listBusyEvents(trx: Knex.Transaction, eventIds: string[]): Promise<Set<string>> {
  const kept = await trx('event_bodies').whereIn('event_id', eventIds).select('event_id')
  if (kept.length === 0) return new Set()
  const locked = await trx('event_bodies').whereIn('event_id', eventIds).forUpdate().skipLocked().select('event_id')
  const ours = new Set(locked.map((row) => row.event_id))
  return new Set(kept.map((row) => row.event_id).filter((id) => !ours.has(id)))
}

/** Of these events those that still have something to do: to be fanned out, or to be sent either way. In one statement: one view. */
async function listPendingEvents(trx: Knex.Transaction, eventIds: string[]): Promise<Set<string>> {
  if (eventIds.length === 0) return new Set()
  const [rows] = await trx.raw(
    `SELECT event_id FROM delivery_queue WHERE event_id IN (?)
     UNION ALL SELECT event_id FROM unrouted_events WHERE event_id IN (?)
     UNION ALL SELECT event_id FROM messages WHERE event_id IN (?) AND due_at IS NOT NULL`,
    [eventIds, eventIds, eventIds],
  )
  return new Set((rows as { event_id: string }[]).map((row) => row.event_id))
}

/** Webhooks deleted long ago that no row of the log belongs to any more, with their secrets. */
async function removeWebhooks(
  trx: Knex.Transaction,
  before: Date,
  after: Position | undefined,
  limit: number,
): Promise<Batch> {
  const rows = await trx('webhooks')
    .where({ state: 'deleted' })
    .where('updated_at', '<', before)
    .where('id', '>', after?.[0] ?? '')
    .orderBy('id')
    .limit(limit)
    .forUpdate()
    .skipLocked()
    .select('id')
  const ids = rows.map((row) => row.id as string)
  // An event that waits for its fan-out since then may still want its copy discarded, under this webhook.
  const unrouted = await trx('unrouted_events').where('event_id', '<', firstIdOf(before.getTime())).first('event_id')
  const named = new Set<string>(unrouted ? ids : await listNamedWebhooks(trx, ids))
  const expired = withoutAll(ids, named)
  for (const table of ['webhook_events', 'webhook_secrets', 'webhook_inactivity', 'lanes']) {
    await trx(table).whereIn('webhook_id', expired).delete()
  }
  const removed = await trx('webhooks').whereIn('id', expired).delete()
  return { looked: ids.length, removed, position: ids.slice(-1) }
}

/** Of these webhooks those that a delivery or a mail belongs to. */
async function listNamedWebhooks(trx: Knex.Transaction, ids: string[]): Promise<string[]> {
  const rows = await trx('webhooks as w')
    .whereIn('w.id', ids)
    .where((named) => {
      for (const table of ['deliveries', 'delivery_queue', 'mails', 'recoveries']) {
        void named.orWhereExists(trx(`${table} as x`).whereRaw('x.webhook_id = w.id').select(trx.raw('1')))
      }
    })
    .select('w.id')
  return rows.map((row) => row.id)
}

function withoutAll(ids: string[], kept: Set<string>): string[] {
  return ids.filter((id) => !kept.has(id))
}
