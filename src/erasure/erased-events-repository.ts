/**
 * Events of a patient: their bodies go, and nothing of them is sent any more. An event stays an event, and its deliveries stay
 * in the log, without body and answers.
 *
 * A copy may be with a daemon at that moment. So the body is written over first, the copies that wait are marked as of an
 * older epoch, which every lane discards, and lanes are asked to read again what they had read ahead. What was under way ends
 * as it ends; if it comes back for a retry it is marked in the same moment. The body's row goes when no copy waits any more.
 */
import type { Knex } from 'knex'
import { sendThrough, type Statement } from '../../db/batch.ts'
import { byPrimaryKey } from '../../db/locking.ts'
import { discardOldCopies } from '../deliveries/old-copies-repository.ts'
import { askToReadSettings, makeLaneDue, queueMovedStatement } from '../deliveries/lanes-repository.ts'
import { routeTheseEvents } from '../events/event-routing.ts'
import { newId } from '../ids.ts'
import { lockMessagesStatement } from '../messages/messages-repository.ts'
import type { Recipient } from './erased-people.ts'

/** Valid JSON for whoever looks, and nothing in it. */
const ERASED_BODY = Buffer.from('{"erased":true}')
/** Older than every webhook's: those begin with 1. */
const ERASED_EPOCH = 0
const COPIES_AT_A_TIME = 500
/** Of one webhook. MariaDB turns a list of 1,000 and more into a query of its own. */
const ANSWERS_AT_A_TIME = 500

/** A window of a lab's events. */
export interface EventWindow {
  labId: string
  after: string
  limit: number
}

interface EventRow {
  id: string
  type: string
  subject_id: string
  /** Null: it is about nothing that is erased. */
  record_id: string | null
  /** Null: no erasure has it yet. */
  erased: string | null
}

/**
 * The events of a window that are about these records, or are messages to them, but for those that an erasure has already.
 * @returns `last`: where the next window begins; undefined: there are no more
 */
export async function listEventsOfSubject(
  knex: Knex,
  erasureId: string,
  isTheirs: (to: Recipient) => boolean,
  { labId, after, limit }: EventWindow,
): Promise<{ ids: string[]; last: string | undefined }> {
  const [rows] = await knex.raw(
    `SELECT e.id, e.type, e.subject_id, r.record_id, x.event_id AS erased FROM (
       SELECT id, type, subject_id FROM events WHERE lab_id = ? AND id > ? ORDER BY id LIMIT ?
     ) e LEFT JOIN erased_records r ON r.erasure_id = ? AND r.record_id = e.subject_id
     LEFT JOIN erased_events x ON x.event_id = e.id ORDER BY e.id`,
    [labId, after, limit, erasureId],
  )
  const window = rows as EventRow[]
  const found = window.filter(({ erased }) => erased === null)
  const ids = found.filter((row) => row.record_id !== null).map(({ id }) => id)
  const byHand = await listMessagesByHand(
    knex,
    found.filter((row) => row.record_id === null),
  )
  const bodies = byHand.length === 0 ? [] : await knex('event_bodies').whereIn('event_id', byHand)
  for (const { event_id: id, body } of bodies) {
    const to = JSON.parse(body.toString('utf8')).data?.message?.recipient
    if (to && isTheirs(to)) ids.push(id)
  }
  return { ids, last: window.length < limit ? undefined : window.at(-1)!.id }
}

/** Whom a message by hand is for stands in its body alone: it may be about nothing but itself, or about somebody else's entry. */
async function listMessagesByHand(
  knex: Knex,
  events: { id: string; type: string; subject_id: string }[],
): Promise<string[]> {
  const messages = events.filter(({ type }) => type.endsWith('.send'))
  const subjects = new Set(messages.flatMap(({ id, subject_id: subject }) => (subject === id ? [] : [subject])))
  const entries = new Set<string>(
    subjects.size === 0
      ? []
      : await knex('entries')
          .whereIn('id', [...subjects])
          .pluck('id'),
  )
  return messages.filter((row) => row.subject_id === row.id || entries.has(row.subject_id)).map(({ id }) => id)
}

/** Labs of the account, in order. */
export async function listLabIds(knex: Knex, accountId: string): Promise<string[]> {
  return knex('labs').where({ account_id: accountId }).orderBy('id').pluck('id')
}

export interface ErasedEvents {
  events: number
  messages: number
  answers: number
}

/** Takes the bodies, and keeps what waits from being sent. */
export async function eraseEvents(
  trx: Knex.Transaction,
  erasureId: string,
  eventIds: string[],
  now: Date,
): Promise<ErasedEvents> {
  if (eventIds.length === 0) return { events: 0, messages: 0, answers: 0 }
  await routeWaiting(trx, eventIds, now)
  await stopCopies(trx, eventIds, now)
  await sendThrough(trx)([lockMessagesStatement(eventIds)])
  const messages: number = await trx('messages')
    .whereIn('event_id', eventIds)
    .where((open) => open.where({ state: 'offered' }).orWhereNotNull('due_at'))
    .update({ state: 'expired', decided_at: now, due_at: null })
  await trx('event_bodies').whereIn('event_id', eventIds).update({ body: ERASED_BODY })
  // Whoever queues one again holds its body: what they have committed since the copies were looked for is found here. Its lane is locked
  // behind the body for once: where that closes a circle, the server lets one of the two begin again.
  await stopCopies(trx, eventIds, now)
  const rows = eventIds.map((id) => ({ event_id: id, erasure_id: erasureId }))
  await trx('erased_events').insert(rows).onConflict().ignore()
  return { events: eventIds.length, messages, answers: await eraseAnswers(trx, eventIds) }
}

/** Routes those that wait for it: a copy that does not exist yet can't be discarded. In the daemon's order: event, then lane. */
async function routeWaiting(trx: Knex.Transaction, eventIds: string[], now: Date): Promise<void> {
  const rows = await trx(byPrimaryKey(trx, 'unrouted_events'))
    .whereIn('event_id', eventIds)
    .orderBy('event_id')
    .forUpdate()
    .select('event_id', 'is_message')
  if (rows.length === 0) return
  const waiting = rows.map((row) => ({ eventId: row.event_id, isMessage: row.is_message === 1 }))
  await routeTheseEvents(sendThrough(trx), waiting, now)
}

/** Marks the copies that wait as of an older epoch, and wakes their lanes, in the order of all: lane, message, others. */
async function stopCopies(trx: Knex.Transaction, eventIds: string[], now: Date): Promise<void> {
  const webhookIds: string[] = await trx('delivery_queue')
    .whereIn('event_id', eventIds)
    .whereNot({ epoch: ERASED_EPOCH })
    .distinct()
    .orderBy('webhook_id')
    .pluck('webhook_id')
  for (const webhookId of webhookIds) {
    await makeLaneDue(trx, webhookId, now)
    await askToReadSettings(trx, webhookId, now)
  }
  if (webhookIds.length === 0) return
  await sendThrough(trx)([queueMovedStatement(webhookIds)])
  await trx('delivery_queue').whereIn('event_id', eventIds).update({ epoch: ERASED_EPOCH, due_at: now })
}

/**
 * The same for copies that have just been queued again, in the transaction that has done so and holds their lanes: an erasure
 * marks what it finds there, before it or after it.
 */
export function keepErasedStatement(copies: { webhookId: string; eventId: string }[], now: Date): Statement {
  return {
    sql: `UPDATE delivery_queue q FORCE INDEX (delivery_queue_delivery) STRAIGHT_JOIN erased_events x ON x.event_id = q.event_id
          SET q.epoch = ?, q.due_at = ? WHERE q.event_id IN (?) AND q.webhook_id IN (?)`,
    values: [ERASED_EPOCH, now, copies.map(({ eventId }) => eventId), copies.map(({ webhookId }) => webhookId)],
  }
}

/** What receivers answered: it may repeat what they were sent. */
async function eraseAnswers(trx: Knex.Transaction, eventIds: string[]): Promise<number> {
  let erased = 0
  for (const table of ['earlier_attempts', 'deliveries']) {
    // By the webhooks of the event's lab, each look-up a whole primary key. Read first, and without a lock.
    const [rows] = await trx.raw(
      `SELECT DISTINCT t.webhook_id, t.event_id FROM events e STRAIGHT_JOIN webhooks w ON w.lab_id = e.lab_id
         STRAIGHT_JOIN ${table} t ON t.webhook_id = w.id AND t.event_id = e.id
       WHERE e.id IN (?) AND t.answer IS NOT NULL ORDER BY t.webhook_id, t.event_id`,
      [eventIds],
    )
    const found = rows as { webhook_id: string; event_id: string }[]
    for (const [webhookId, ofWebhook] of Map.groupBy(found, (row) => row.webhook_id)) {
      const ids = ofWebhook.map((row) => row.event_id)
      for (let at = 0; at < ids.length; at += ANSWERS_AT_A_TIME) {
        erased += await trx(table)
          .where({ webhook_id: webhookId })
          .whereIn('event_id', ids.slice(at, at + ANSWERS_AT_A_TIME))
          .whereNotNull('answer')
          .update({ answer: null })
      }
    }
  }
  return erased
}

/** Events of the erasure whose copies may still wait. */
export async function listUnsettled(knex: Knex, erasureId: string, limit: number): Promise<string[]> {
  return knex('erased_events')
    .where({ erasure_id: erasureId })
    .whereNull('settled_at')
    .orderBy('event_id')
    .limit(limit)
    .pluck('event_id')
}

/**
 * Of these events marks again what has come back, and discards what no daemon holds. @returns how many copies were discarded
 */
export async function discardCopies(trx: Knex.Transaction, eventIds: string[], now: Date): Promise<number> {
  await stopCopies(trx, eventIds, now)
  const webhookIds: string[] = await trx('delivery_queue')
    .whereIn('event_id', eventIds)
    .distinct()
    .orderBy('webhook_id')
    .pluck('webhook_id')
  let discarded = 0
  for (const webhookId of webhookIds) {
    // Taken and given back in one transaction: no daemon sees it, and none can take the lane meanwhile.
    const token = newId(now.getTime())
    const taken: number = await trx('lanes')
      .where({ webhook_id: webhookId })
      .whereNull('owner')
      .update({ owner: token })
    if (taken === 0) continue
    // Up to the oldest real epoch: copies of a webhook that was deleted meanwhile are its lane's own business.
    const lane = { webhookId, token, epoch: ERASED_EPOCH + 1, state: 'active', heldEventIds: [] }
    discarded += (await discardOldCopies(trx, lane, now, COPIES_AT_A_TIME)).copies
    await trx('lanes').where({ webhook_id: webhookId, owner: token }).update({ owner: null })
  }
  return discarded
}

/**
 * Ends those of these events of which nothing waits any more. The payload's lock comes first: whoever sends one again by hand
 * has it.
 */
export async function settleEvents(
  trx: Knex.Transaction,
  eventIds: string[],
  now: Date,
): Promise<{ settled: number; answers: number }> {
  if (eventIds.length === 0) return { settled: 0, answers: 0 }
  await trx(byPrimaryKey(trx, 'event_bodies'))
    .whereIn('event_id', eventIds)
    .orderBy('event_id')
    .forUpdate()
    .select('event_id', 'is_message')
  const waiting = new Set<string>()
  for (const table of ['unrouted_events', 'delivery_queue']) {
    for (const id of await trx(table).whereIn('event_id', eventIds).distinct('event_id').pluck('event_id')) {
      waiting.add(id)
    }
  }
  const over = eventIds.filter((id) => !waiting.has(id))
  if (over.length === 0) return { settled: 0, answers: 0 }
  // An attempt that was under way has been recorded by now, with what was answered.
  const answers = await eraseAnswers(trx, over)
  await trx('event_bodies').whereIn('event_id', over).delete()
  await trx('erased_events').whereIn('event_id', over).update({ settled_at: now })
  return { settled: over.length, answers }
}
