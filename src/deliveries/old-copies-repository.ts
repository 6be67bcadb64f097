/**
 * Copies in the queue that are never to be sent: their webhook was deleted since they were routed, or an erasure has taken them.
 */
import type { Knex } from 'knex'
import { sendThrough } from '../../db/batch.ts'
import { endOfOldCopy } from '../messages/message-rules.ts'
import { lockMessagesStatement, recordCopyEnds } from '../messages/messages-repository.ts'
import { removedStatements } from './packed-rows.ts'

export interface Discarded {
  /** 0 when none is left, or when the lane was lost. */
  copies: number
  /** Messages among them that no other webhook has: they are due at the gateway now. */
  normalMessages: number
}

const NOTHING_DISCARDED: Discarded = { copies: 0, normalMessages: 0 }

/** Whether what is held has copies of an older epoch among it. */
async function holdsOldCopies(
  trx: Knex.Transaction,
  lane: { webhookId: string; epoch: number; heldEventIds: string[] },
): Promise<boolean> {
  const row = await trx('delivery_queue')
    .where({ webhook_id: lane.webhookId })
    .where('epoch', '<', lane.epoch)
    .whereIn('event_id', lane.heldEventIds)
    .first('event_id')
  return row !== undefined
}

/**
 * Discards pending copies of a webhook that were routed under an older epoch: they stay in the log and are never sent by
 * themselves; messages among them are handed back. Only the lane's owner does so.
 * @param lane with the state that was read together with the epoch: the two tell what has ended a copy; what is held is left to
 *   the attempt that is made of it
 */
export async function discardOldCopies(
  trx: Knex.Transaction,
  lane: { webhookId: string; token: string; epoch: number; state: string; heldEventIds: string[] },
  now: Date,
  limit: number,
): Promise<Discarded> {
  const owned = await trx('lanes')
    .where({ webhook_id: lane.webhookId, owner: lane.token })
    .forUpdate()
    .first('clean_epoch')
  if (!owned) return NOTHING_DISCARDED
  const rows = await trx('delivery_queue as q')
    .leftJoin('messages as m', 'm.event_id', 'q.event_id')
    .where('q.webhook_id', lane.webhookId)
    .where('q.epoch', '<', lane.epoch)
    .whereNotIn('q.event_id', lane.heldEventIds)
    .orderBy(['q.due_at', 'q.event_id'])
    .limit(limit)
    .select('q.event_id', 'q.due_at', 'q.attempts', 'q.epoch', { message_id: 'm.event_id' })
  if (rows.length === 0) {
    // What a fan-out still adds under an old epoch is due at once, and found by reading.
    if (owned.clean_epoch < lane.epoch && !(await holdsOldCopies(trx, lane))) {
      await trx('lanes').where({ webhook_id: lane.webhookId }).update({ clean_epoch: lane.epoch })
    }
    return NOTHING_DISCARDED
  }
  const ended = rows.flatMap(({ message_id: eventId, epoch }) =>
    eventId === null ? [] : [{ eventId: eventId as string, end: endOfOldCopy(lane, epoch) }],
  )
  const messageIds = ended.map(({ eventId }) => eventId)
  const send = sendThrough(trx)
  if (messageIds.length > 0) await send([lockMessagesStatement(messageIds)])
  await trx('deliveries')
    .insert(
      rows.map((row) => ({
        webhook_id: lane.webhookId,
        event_id: row.event_id,
        status: 'discarded',
        attempts: row.attempts,
        ended_at: now,
      })),
    )
    .onConflict()
    .merge(['status', 'attempts', 'ended_at'])
  await send(removedStatements(rows.map((row) => ({ webhookId: lane.webhookId, eventId: row.event_id }))))
  return { copies: rows.length, normalMessages: await recordCopyEnds(send, ended, now) }
}
