/**
 * Deliveries in every state, written as routing, the recorder and the lane write them, for tests that run no daemon.
 */
import type { Knex } from 'knex'
import { recordEvent } from '../../src/events/events-repository.ts'
import type { RecordedEvent } from '../../src/events/event-types.ts'
import { newId, publicEventId, timeOfId } from '../../src/ids.ts'
import { recordMessage } from '../../src/messages/message-recording.ts'
import type { NewMessage } from '../../src/events/message-payloads.ts'
import type { Database } from '../../db/connection.ts'

export interface EventWish {
  accountId: string
  labId: string
  type?: RecordedEvent['type']
  /** Milliseconds since 1970. */
  atMs: number
  corporateId?: string | null
}

/** An event that was fanned out already. @returns its id */
export async function buildEvent(database: Database, wish: EventWish): Promise<string> {
  const id = newId(wish.atMs)
  await database.transaction(async (trx) => {
    await recordEvent(trx, {
      id,
      accountId: wish.accountId,
      labId: wish.labId,
      type: wish.type ?? 'lead.created',
      subjectId: id,
      corporateId: wish.corporateId ?? null,
      doctorId: null,
      hospitalId: null,
      body: Buffer.from(JSON.stringify({ id: publicEventId(id) })),
    })
    await trx('unrouted_events').where({ event_id: id }).delete()
  })
  return id
}

/** A copy that waits in the queue. */
export async function buildPending(
  knex: Knex,
  webhookId: string,
  eventId: string,
  fields: { dueAt?: Date; attempts?: number; epoch?: number } = {},
): Promise<void> {
  await knex('delivery_queue').insert({
    webhook_id: webhookId,
    event_id: eventId,
    due_at: fields.dueAt ?? new Date(timeOfId(eventId)),
    attempts: fields.attempts ?? 0,
    epoch: fields.epoch ?? 1,
  })
}

export async function buildEnded(
  knex: Knex,
  webhookId: string,
  eventId: string,
  status: 'delivered' | 'exhausted' | 'discarded',
  attempts = 1,
): Promise<void> {
  const endedAt = new Date(timeOfId(eventId) + 1000)
  await knex('deliveries').insert({ webhook_id: webhookId, event_id: eventId, status, attempts, ended_at: endedAt })
}

export async function buildAttempt(
  knex: Knex,
  webhookId: string,
  eventId: string,
  n: number,
  fields: { status?: number | null; error?: string | null; answer?: Buffer | null; class?: string } = {},
): Promise<void> {
  const at = new Date(timeOfId(eventId) + n * 1000)
  await knex('earlier_attempts').insert({
    webhook_id: webhookId,
    event_id: eventId,
    n,
    seq: n,
    started_at: at,
    recorded_at: at,
    duration_ms: 12,
    class: 'ok',
    status: 204,
    ...fields,
  })
}

/** A message that a webhook has taken long since. @returns its event's id */
export async function buildMessage(database: Database, wish: Omit<EventWish, 'type'>): Promise<string> {
  const { accountId, labId, atMs, corporateId = null } = wish
  const [id, subjectId] = [newId(atMs), newId(atMs)]
  const record = { id: subjectId, accountId, labId, integratorId: null, version: 1 }
  const message: NewMessage = {
    type: 'booking.send',
    subject: { kind: 'entry', ...record, corporateId, doctorId: null, hospitalId: null },
    recipient: { contact: '9876543210', name: 'Asha' },
    template: 'visit_reminder',
    text: 'Your visit is on Monday.',
    variables: {},
    attachmentUrl: null,
  }
  await database.transaction(async (trx) => {
    await recordMessage(trx, id, message, new Date(atMs))
    await trx('unrouted_events').where({ event_id: id }).delete()
    await trx('messages').where({ event_id: id }).update({ state: 'taken' })
  })
  return id
}
