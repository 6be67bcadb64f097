/**
 * What may be sent again by hand, and what not. Pure.
 */
import { badRequest, conflict, type DomainError } from '../errors.ts'
import { timeOfId } from '../ids.ts'

/** How far back a recovery may reach. */
export const RECOVERY_MAX_DAYS = 14

export type RecoveryState = 'running' | 'completed' | 'stopped'

export interface Recovery {
  id: string
  accountId: string
  labId: string
  webhookId: string
  state: RecoveryState
  since: Date
  /** The events in question, from the first of these ids up to the second, not including it. */
  fromId: string
  untilId: string
  /** The last delivery that was looked at; null: none yet. */
  deliveryPosition: string | null
  /** The last event that was looked at for being missed; null: none yet. */
  eventPosition: string | null
  requeued: number
  /** Messages that somebody has sent already. */
  skippedMessages: number
  /** Events whose body is not kept any more. */
  skippedExpired: number
  /** Events of times in which the webhook was auto-deleted. */
  missed: number
  createdAt: Date
  updatedAt: Date
  finishedAt: Date | null
}

/** @throws 400 for a date that does not exist, a time in the future, or one too long ago */
export function recoveryStart(since: string, now: Date): Date {
  const at = new Date(since)
  if (Number.isNaN(at.getTime())) throw badRequest('since is no time', 'invalid_request', 'since')
  const oldestMs = now.getTime() - RECOVERY_MAX_DAYS * 86_400_000
  if (at.getTime() > now.getTime()) throw badRequest('since is in the future', 'invalid_request', 'since')
  if (at.getTime() < oldestMs) {
    throw badRequest(`since is more than ${RECOVERY_MAX_DAYS} days ago`, 'invalid_request', 'since')
  }
  return at
}

/** Percent of the events' time that was looked at, from 0 to 100; counting what was missed comes last and adds nothing. */
export function progressOf({ state, fromId, untilId, deliveryPosition }: Recovery): number {
  if (state === 'completed') return 100
  if (deliveryPosition === null) return 0
  const [fromMs, untilMs, atMs] = [timeOfId(fromId), timeOfId(untilId), timeOfId(deliveryPosition)]
  // The last step is the end, not the last delivery.
  return untilMs <= fromMs ? 99 : Math.min(99, Math.max(0, Math.floor((100 * (atMs - fromMs)) / (untilMs - fromMs))))
}

/** What is known of a delivery that somebody wants to have sent again. */
export interface Redelivery {
  webhookState: string
  epoch: number
  /** Its row in the queue. */
  queued: { epoch: number; dueAt: Date } | undefined
  /** Of a `*.send` event: `offered`, `taken`, `normal` or `expired`. */
  messageState: string | undefined
  bodyIsKept: boolean
}

/** A message that has gone out: another copy makes the patient get it twice. */
export function isMessageSent(messageState: string | undefined): boolean {
  return messageState === 'taken' || messageState === 'normal'
}

/**
 * @param allowSecondMessage the caller wants it though the patient may get it twice
 * @throws 409 with what it is and what can be done
 */
export function requireRedeliverable(delivery: Redelivery, allowSecondMessage: boolean): void {
  const { webhookState, epoch, queued, messageState, bodyIsKept } = delivery
  requireActiveWebhook(webhookState)
  if (queued && queued.epoch >= epoch) {
    throw invalidState(`the delivery is pending; its next attempt is due at ${queued.dueAt.toISOString()}`)
  }
  if (queued) throw invalidState('the delivery is being discarded; try again in a few seconds')
  if (!bodyIsKept) throw conflict('the body of the event is not kept any more', 'payload_expired')
  if (isMessageSent(messageState) && !allowSecondMessage) {
    const how = messageState === 'taken' ? 'a webhook has taken the message' : 'the message was sent the normal way'
    throw conflict(
      `${how}; the patient may get it twice: send allowSecondMessage true if that is wanted`,
      'message_already_sent',
    )
  }
}

/** @throws 409 for a webhook that gets nothing */
export function requireActiveWebhook(state: string): void {
  if (state === 'auto_deleted') throw invalidState('the webhook is auto-deleted; reactivate it first')
  if (state !== 'active') throw invalidState('the webhook is deleted, which is final')
}

/** The 409 for an event of a time in which the webhook was auto-deleted. */
export function missedEvent(): DomainError {
  return conflict(
    'the event is of a time in which the webhook was auto-deleted: such events are not sent later',
    'missed_event',
  )
}

/** The 409 for a second recovery of a webhook. */
export function recoveryRunning(recoveryId: string): DomainError {
  return conflict(`recovery ${recoveryId} of this webhook is still running`, 'recovery_running')
}

export function invalidState(details: string): DomainError {
  return conflict(details, 'invalid_state')
}
