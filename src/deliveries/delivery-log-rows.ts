/**
 * The delivery log as both contracts show it. What there is not is absent, not null. Pure.
 */
import type { components } from '../generated/client.ts'
import { publicEventId, timeOfId } from '../ids.ts'
import type { DeliveryDetail } from './delivery-log-access.ts'
import type { MissedEvent } from './delivery-log-missed-repository.ts'
import type { LoggedAttempt } from './delivery-log-repository.ts'
import type { LoggedDelivery } from './delivery-log-rules.ts'
import { progressOf, type Recovery } from './recovery-rules.ts'

type Schemas = components['schemas']

export function toDeliveryRow(delivery: LoggedDelivery): Schemas['DeliveryRow'] {
  const { eventId, webhookId, type, status, attempts, nextAttemptAt, endedAt } = delivery
  return {
    eventId: publicEventId(eventId),
    webhookId,
    type,
    status,
    attempts,
    recordedAt: recordedAtOf(eventId),
    ...(nextAttemptAt === null ? {} : { nextAttemptAt: nextAttemptAt.toISOString() }),
    ...(endedAt === null ? {} : { endedAt: endedAt.toISOString() }),
  }
}

export function toDeliveryDetail({ delivery, attempts, body }: DeliveryDetail): Schemas['DeliveryDetail'] {
  return { ...toDeliveryRow(delivery), attemptLog: attempts.map(toAttempt), body: textOf(body) }
}

function toAttempt(attempt: LoggedAttempt): Schemas['DeliveryAttempt'] {
  const { n, startedAt, durationMs, status, error, answer } = attempt
  return {
    attempt: n,
    startedAt: startedAt.toISOString(),
    durationMs,
    class: attempt.class,
    ...(status === null ? {} : { status }),
    ...(error === null ? {} : { error }),
    // Whatever a remote side has answered, cut at a byte: what is no UTF-8 is shown as such.
    ...(answer === null ? {} : { answer: answer.toString('utf8') }),
  }
}

export function toMissedEventRow(webhookId: string, event: MissedEvent): Schemas['MissedEventRow'] {
  const { eventId, type } = event
  return { eventId: publicEventId(eventId), webhookId, type, recordedAt: recordedAtOf(eventId) }
}

export function toMissedEventDetail(
  webhookId: string,
  event: MissedEvent,
  body: Buffer | undefined,
): Schemas['MissedEventDetail'] {
  return { ...toMissedEventRow(webhookId, event), body: textOf(body) }
}

export function toRecoveryRow(recovery: Recovery): Schemas['Recovery'] {
  const { finishedAt } = recovery
  return {
    recoveryId: recovery.id,
    webhookId: recovery.webhookId,
    state: recovery.state,
    since: recovery.since.toISOString(),
    progress: progressOf(recovery),
    requeued: recovery.requeued,
    skippedMessages: recovery.skippedMessages,
    skippedExpired: recovery.skippedExpired,
    missed: recovery.missed,
    createdAt: recovery.createdAt.toISOString(),
    updatedAt: recovery.updatedAt.toISOString(),
    ...(finishedAt === null ? {} : { finishedAt: finishedAt.toISOString() }),
  }
}

function textOf(body: Buffer | undefined): string | null {
  return body === undefined ? null : body.toString('utf8')
}

/** When its id was made: what `from`, `to` and a recovery's `since` ask for. The database's own time is some milliseconds later. */
function recordedAtOf(eventId: string): string {
  return new Date(timeOfId(eventId)).toISOString()
}
