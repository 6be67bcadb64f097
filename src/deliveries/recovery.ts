/**
 * Sending again by hand: one delivery at once, or in steps all that ended without a 2xx since a time. Each is done under the
 * webhook's lock, so that a deletion comes before it (and it is refused) or after it (and the copy is discarded).
 */
import type { Knex } from 'knex'
import { notFound } from '../errors.ts'
import { firstIdOf, newId } from '../ids.ts'
import { countMissedEvents, findMissedEvent } from './delivery-log-missed-repository.ts'
import type { LogWebhook } from './delivery-log-webhooks-repository.ts'
import { lockLane, makeLaneDue } from './lanes-repository.ts'
import {
  findRunningRecovery,
  hasDue,
  hasOldCopies,
  insertRecovery,
  listNextDeliveries,
  listQueuedEvents,
  lockBodies,
  lockMessageStates,
  lockRunningRecovery,
  lockWebhook,
  readRedelivery,
  recordProgress,
  recordRecoveryEnd,
  requeue,
  type LockedWebhook,
} from './recovery-repository.ts'
import {
  isMessageSent,
  missedEvent,
  recoveryRunning,
  requireActiveWebhook,
  requireRedeliverable,
  type Recovery,
} from './recovery-rules.ts'

/**
 * Sends one ended delivery again, from now on like any other.
 * @param allowSecondMessage also a message that the patient has got already
 * @throws 404 for an event that the webhook never got, 409 for one that is not to be sent
 */
export async function redeliver(
  trx: Knex.Transaction,
  webhook: LogWebhook,
  eventId: string | undefined,
  allowSecondMessage: boolean,
  now: Date,
): Promise<void> {
  const locked = await lockWebhook(trx, webhook.id)
  if (!locked || eventId === undefined) throw notFound('delivery not found')
  // Before its message, as everybody locks them.
  await lockLane(trx, webhook.id)
  const { ended, ...redelivery } = await readRedelivery(trx, locked, eventId)
  if (!ended && !redelivery.queued) {
    throw (await findMissedEvent(trx, webhook, eventId)) ? missedEvent() : notFound('delivery not found')
  }
  requireRedeliverable(redelivery, allowSecondMessage)
  await requeue(trx, locked, [{ eventId, ...ended! }], now)
  await makeLaneDue(trx, webhook.id, now)
}

/**
 * Orders a recovery: the daemon takes it from here.
 * @param since events from then on
 * @throws 409 when the webhook is not active, or another one runs
 */
export async function startRecovery(
  trx: Knex.Transaction,
  webhook: LogWebhook,
  since: Date,
  now: Date,
): Promise<Recovery> {
  const locked = await lockWebhook(trx, webhook.id)
  requireActiveWebhook(locked?.state ?? 'deleted')
  const running = await findRunningRecovery(trx, webhook.id)
  if (running) throw recoveryRunning(running.id)
  const recovery: Recovery = {
    id: newId(now.getTime()),
    accountId: webhook.accountId,
    labId: webhook.labId,
    webhookId: webhook.id,
    state: 'running',
    since,
    fromId: firstIdOf(since.getTime()),
    untilId: firstIdOf(now.getTime() + 1),
    deliveryPosition: null,
    eventPosition: null,
    requeued: 0,
    skippedMessages: 0,
    skippedExpired: 0,
    missed: 0,
    createdAt: now,
    updatedAt: now,
    finishedAt: null,
  }
  await insertRecovery(trx, recovery)
  return recovery
}

/** Deliveries that one step looks at. */
const STEP_ROWS = 500
/** With so many due, a recovery waits: what is new is not to stand behind all that is old. */
const DUE_MOST = 1000

export type StepOutcome = 'more' | 'waiting' | 'ended'

/**
 * One step of a recovery, in one transaction. A crash leaves it done or not; any number of daemons may try at once, the
 * locks put them in a row.
 */
export async function stepRecovery(trx: Knex.Transaction, known: Recovery, now: Date): Promise<StepOutcome> {
  const webhook = await lockWebhook(trx, known.webhookId)
  const recovery = await lockRunningRecovery(trx, known.id)
  if (!recovery) return 'ended'
  if (!webhook || webhook.state !== 'active') {
    await recordRecoveryEnd(trx, recovery.id, 'stopped', now)
    return 'ended'
  }
  if (await hasOldCopies(trx, webhook)) return 'waiting'
  if (await hasDue(trx, webhook.id, now, DUE_MOST)) return 'waiting'
  const copies = await listNextDeliveries(trx, recovery, STEP_ROWS)
  if (copies.length > 0) {
    await recoverCopies(trx, webhook, recovery, copies, now)
    return 'more'
  }
  return countMissed(trx, webhook, recovery, now)
}

async function recoverCopies(
  trx: Knex.Transaction,
  webhook: LockedWebhook,
  recovery: Recovery,
  copies: Awaited<ReturnType<typeof listNextDeliveries>>,
  now: Date,
): Promise<void> {
  const ended = copies.filter(({ status, isTest }) => status !== 'delivered' && !isTest)
  const eventIds = ended.map(({ eventId }) => eventId)
  const messages = await lockMessageStates(trx, eventIds)
  const bodies = await lockBodies(trx, eventIds)
  const queued = await listQueuedEvents(trx, webhook.id, eventIds)
  const waiting = ended.filter(({ eventId }) => !queued.has(eventId))
  const unsent = waiting.filter(({ eventId }) => !isMessageSent(messages.get(eventId)))
  const sendable = unsent.filter(({ eventId }) => bodies.has(eventId))
  await requeue(trx, webhook, sendable, now)
  if (sendable.length > 0) await makeLaneDue(trx, webhook.id, now)
  const step = {
    deliveryPosition: copies.at(-1)!.eventId,
    requeued: recovery.requeued + sendable.length,
    skippedMessages: recovery.skippedMessages + waiting.length - unsent.length,
    skippedExpired: recovery.skippedExpired + unsent.length - sendable.length,
  }
  await recordProgress(trx, { ...recovery, ...step }, now)
}

/** What no operation sends is counted, so that whoever ordered the recovery knows. */
async function countMissed(
  trx: Knex.Transaction,
  webhook: LockedWebhook,
  recovery: Recovery,
  now: Date,
): Promise<StepOutcome> {
  // The position is an event that was looked at; before the first, all from `fromId` on are behind it.
  const after = recovery.eventPosition ?? recovery.fromId
  const { missed, lookedTo } = await countMissedEvents(trx, webhook, { after, untilId: recovery.untilId })
  if (lookedTo === null) {
    await recordRecoveryEnd(trx, recovery.id, 'completed', now)
    return 'ended'
  }
  await recordProgress(trx, { ...recovery, eventPosition: lookedTo, missed: recovery.missed + missed }, now)
  return 'more'
}
