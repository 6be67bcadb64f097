/**
 * A message is recorded in the transaction of the action that it tells of: the event, and the row that says what becomes of
 * it, or neither.
 */
import type { Knex } from 'knex'
import type { Statement } from '../../db/batch.ts'
import { recordMessageEventStatements } from '../events/events-repository.ts'
import { messageSend, type MessageEvent, type NewMessage } from '../events/message-payloads.ts'
import { insertMessageStatement } from './messages-repository.ts'

/**
 * Records a message. The caller tells the daemons (`hint`) after the commit; the fan-out decides who sends it.
 * @param eventId made by the caller with `newId`; it is the message's id too
 * @param at the time of the event, in the database's UTC time
 */
export async function recordMessage(
  trx: Knex.Transaction,
  eventId: string,
  message: NewMessage,
  at: Date,
): Promise<MessageEvent> {
  const event = messageSend(eventId, message, at)
  for (const { sql, values } of recordMessageStatements(event)) await trx.raw(sql, values as Knex.RawBinding[])
  return event
}

/** The same for a transaction of several statements in one round trip. */
export function recordMessageStatements(event: MessageEvent): Statement[] {
  return [...recordMessageEventStatements(event), insertMessageStatement(event)]
}
