/**
 * Rows of `recoveries`, and copies that go into the queue again. First attempt, retry and this are one path: a row of
 * `delivery_queue` under the webhook's epoch, whose attempts go on being numbered where they were.
 */
import type { Knex } from 'knex'
import { byPrimaryKey } from '../../db/locking.ts'
import { isIdShaped } from '../ids.ts'
import type { Recovery, RecoveryState, Redelivery } from './recovery-rules.ts'

/** A webhook under its row's lock, the first of the order webhook, lane, message, others. */
export interface LockedWebhook {
  id: string
  labId: string
  state: string
  epoch: number
}

/** @param webhookId of a webhook that the caller may see */
export async function lockWebhook(trx: Knex.Transaction, webhookId: string): Promise<LockedWebhook | undefined> {
  const row = await trx('webhooks').where({ id: webhookId }).forUpdate().first('id', 'lab_id', 'state', 'epoch')
  return row && { id: row.id, labId: row.lab_id, state: row.state, epoch: row.epoch }
}

export interface EndedDelivery {
  attempts: number
  /** A test goes again as one: it judges nothing. */
  isTest: boolean
}

/** What decides on sending a delivery again. Locks its message and its payload, so that neither changes or goes meanwhile. */
export async function readRedelivery(
  trx: Knex.Transaction,
  webhook: LockedWebhook,
  eventId: string,
): Promise<Redelivery & { ended: EndedDelivery | undefined }> {
  const message = await trx('messages').where({ event_id: eventId }).forUpdate().first('state')
  const body = await trx('event_bodies').where({ event_id: eventId }).forUpdate().first('event_id')
  const queued = await trx('delivery_queue')
    .where({ event_id: eventId, webhook_id: webhook.id })
    .first('epoch', 'due_at')
  const ended = await trx('deliveries as d')
    .join('events as e', 'e.id', 'd.event_id')
    .where({ 'd.webhook_id': webhook.id, 'd.event_id': eventId })
    .first('d.attempts', 'e.type')
  return {
    webhookState: webhook.state,
    epoch: webhook.epoch,
    queued: queued && { epoch: queued.epoch, dueAt: queued.due_at },
    messageState: message?.state,
    bodyIsKept: body !== undefined && (await listErasedEvents(trx, [eventId])).size === 0,
    ended: ended && { attempts: ended.attempts, isTest: ended.type === TEST_TYPE },
  }
}

const TEST_TYPE = 'webhook.test'

/**
 * Puts ended copies into the queue again, due now, under the epoch of the locked webhook. The caller makes the lane due
 * afterwards, in the same transaction. Their rows in `deliveries` stay until the next end overwrites them; the attempt that
 * ended them is from now on an earlier one.
 */
export async function requeue(
  trx: Knex.Transaction,
  webhook: LockedWebhook,
  copies: { eventId: string; attempts: number; isTest: boolean }[],
  now: Date,
): Promise<void> {
  if (copies.length === 0) return
  const ended = [webhook.id, copies.map(({ eventId }) => eventId)]
  await trx.raw(
    `INSERT INTO earlier_attempts
       (webhook_id, event_id, n, seq, started_at, recorded_at, duration_ms, class, status, error, answer)
     SELECT webhook_id, event_id, attempts, seq, started_at, ended_at, duration_ms, class, http_status, error, answer
     FROM deliveries WHERE webhook_id = ? AND event_id IN (?) AND class IS NOT NULL`,
    ended,
  )
  await trx.raw(
    'UPDATE deliveries SET class = NULL, error = NULL, answer = NULL WHERE webhook_id = ? AND event_id IN (?)',
    ended,
  )
  await trx('delivery_queue').insert(
    copies.map(({ eventId, attempts, isTest }) => ({
      webhook_id: webhook.id,
      due_at: now,
      event_id: eventId,
      attempts,
      epoch: webhook.epoch,
      is_test: isTest ? 1 : 0,
    })),
  )
}

export async function insertRecovery(trx: Knex.Transaction, recovery: Recovery): Promise<void> {
  await trx('recoveries').insert({
    id: recovery.id,
    account_id: recovery.accountId,
    lab_id: recovery.labId,
    webhook_id: recovery.webhookId,
    state: recovery.state,
    since_at: recovery.since,
    from_id: recovery.fromId,
    until_id: recovery.untilId,
    created_at: recovery.createdAt,
    updated_at: recovery.updatedAt,
  })
}

/** A recovery of the account, whatever has become of it. */
export async function findRecovery(knex: Knex, accountId: string, recoveryId: string): Promise<Recovery | undefined> {
  if (!isIdShaped(recoveryId)) return undefined
  const row = await knex('recoveries').where({ id: recoveryId, account_id: accountId }).first()
  return row && toRecovery(row)
}

export async function findRunningRecovery(knex: Knex, webhookId: string): Promise<Recovery | undefined> {
  const row = await knex('recoveries').where({ webhook_id: webhookId, state: 'running' }).first()
  return row && toRecovery(row)
}

/** @param afterId those behind this one */
export async function listRunningRecoveries(knex: Knex, afterId: string, limit: number): Promise<Recovery[]> {
  const rows = await knex('recoveries').where({ state: 'running' }).where('id', '>', afterId).orderBy('id').limit(limit)
  return rows.map(toRecovery)
}

/** Locks a recovery that still runs, behind its webhook's lock. */
export async function lockRunningRecovery(trx: Knex.Transaction, recoveryId: string): Promise<Recovery | undefined> {
  const row = await trx('recoveries').where({ id: recoveryId, state: 'running' }).forUpdate().first()
  return row && toRecovery(row)
}

/** What a step has added, in the transaction of what it did: a crash loses both or neither. */
export async function recordProgress(trx: Knex.Transaction, recovery: Recovery, now: Date): Promise<void> {
  await trx('recoveries').where({ id: recovery.id }).update({
    delivery_position: recovery.deliveryPosition,
    event_position: recovery.eventPosition,
    requeued: recovery.requeued,
    skipped_messages: recovery.skippedMessages,
    skipped_expired: recovery.skippedExpired,
    missed: recovery.missed,
    updated_at: now,
  })
}

export async function recordRecoveryEnd(
  trx: Knex.Transaction,
  recoveryId: string,
  state: Exclude<RecoveryState, 'running'>,
  now: Date,
): Promise<void> {
  await trx('recoveries').where({ id: recoveryId }).update({ state, finished_at: now, updated_at: now })
}

/**
 * Whether copies of an older epoch may still wait to be discarded: they are ended deliveries only after that. The lane's row
 * stays locked: results of known lanes are recorded under that lock alone, and what ends between a look at the deliveries and one
 * at the queue would be taken for a delivery that has ended and waits nowhere.
 */
export async function hasOldCopies(trx: Knex.Transaction, webhook: LockedWebhook): Promise<boolean> {
  const lane = await trx('lanes').where({ webhook_id: webhook.id }).forUpdate().first('clean_epoch')
  return lane !== undefined && lane.clean_epoch < webhook.epoch
}

/** Whether so many of the webhook's deliveries are due now, or more. */
export async function hasDue(trx: Knex.Transaction, webhookId: string, now: Date, many: number): Promise<boolean> {
  const [rows] = await trx.raw(
    'SELECT COUNT(*) AS n FROM (SELECT 1 FROM delivery_queue WHERE webhook_id = ? AND due_at <= ? LIMIT ?) some_rows',
    [webhookId, now, many],
  )
  return Number(rows[0].n) >= many
}

export interface RecoverableCopy {
  eventId: string
  status: string
  attempts: number
  isTest: boolean
}

/** Ended deliveries of the recovery behind its position, the oldest event first. */
export async function listNextDeliveries(
  trx: Knex.Transaction,
  recovery: Recovery,
  limit: number,
): Promise<RecoverableCopy[]> {
  const [rows] = await trx.raw(
    `SELECT d.event_id, d.status, d.attempts, e.type FROM deliveries d STRAIGHT_JOIN events e ON e.id = d.event_id
     WHERE d.webhook_id = ? AND d.event_id >= ? AND d.event_id > ? AND d.event_id < ? ORDER BY d.event_id LIMIT ?`,
    [recovery.webhookId, recovery.fromId, recovery.deliveryPosition ?? '', recovery.untilId, limit],
  )
  return (rows as Record<string, unknown>[]).map((row) => ({
    eventId: row.event_id as string,
    status: row.status as string,
    attempts: row.attempts as number,
    isTest: row.type === TEST_TYPE,
  }))
}

/** Locks the messages among these events; their states. */
export async function lockMessageStates(trx: Knex.Transaction, eventIds: string[]): Promise<Map<string, string>> {
  const rows = await trx(byPrimaryKey(trx, 'messages'))
    .whereIn('event_id', eventIds)
    .orderBy('event_id')
    .forUpdate()
    .select('event_id', 'state')
  return new Map(rows.map((row) => [row.event_id, row.state]))
}

/** Of these events, behind the locks of their payloads, those that an erasure has taken and not yet settled. */
async function listErasedEvents(trx: Knex.Transaction, eventIds: string[]): Promise<Set<string>> {
  return new Set(await trx('erased_events').whereIn('event_id', eventIds).pluck('event_id'))
}

/** Locks the payloads of these events; those that are still there, and not those of a patient who is being erased. */
export async function lockBodies(trx: Knex.Transaction, eventIds: string[]): Promise<Set<string>> {
  const rows = await trx(byPrimaryKey(trx, 'event_bodies'))
    .whereIn('event_id', eventIds)
    .orderBy('event_id')
    .forUpdate()
    .select('event_id', 'is_message')
  const erased = await listErasedEvents(trx, eventIds)
  return new Set(rows.map((row) => row.event_id).filter((id) => !erased.has(id)))
}

/** Those of these events that wait for the webhook already. */
export async function listQueuedEvents(
  trx: Knex.Transaction,
  webhookId: string,
  eventIds: string[],
): Promise<Set<string>> {
  const rows = await trx('delivery_queue')
    .where({ webhook_id: webhookId })
    .whereIn('event_id', eventIds)
    .select('event_id')
  return new Set(rows.map((row) => row.event_id))
}

function toRecovery(row: Record<string, unknown>): Recovery {
  return {
    id: row.id as string,
    accountId: row.account_id as string,
    labId: row.lab_id as string,
    webhookId: row.webhook_id as string,
    state: row.state as RecoveryState,
    since: row.since_at as Date,
    fromId: row.from_id as string,
    untilId: row.until_id as string,
    deliveryPosition: row.delivery_position as string | null,
    eventPosition: row.event_position as string | null,
    requeued: row.requeued as number,
    skippedMessages: row.skipped_messages as number,
    skippedExpired: row.skipped_expired as number,
    missed: row.missed as number,
    createdAt: row.created_at as Date,
    updatedAt: row.updated_at as Date,
    finishedAt: row.finished_at as Date | null,
  }
}
