/**
 * T4: what became of a batch of attempts, written in one transaction: the attempts, their deliveries, the health of their
 * webhooks and the mails about it, and what becomes of messages. A crash before its COMMIT leaves the deliveries pending, and they are tried again; there
 * is never an attempt without its consequence, nor the other way round.
 */
import { COMMIT, type BatchPool, type BatchResult, type Statement } from '../../db/batch.ts'
import { keepErasedStatement } from '../erasure/erased-events-repository.ts'
import {
  copyEndStatements,
  countNormal,
  lockMessagesStatement,
  type EndedCopy,
} from '../messages/messages-repository.ts'
import { endedStatements, type EndedRow } from './ended-rows.ts'
import { haveAllMoved, KnownLanes, moveStatement } from './known-lanes.ts'
import { recordedStatements, removedStatements } from './packed-rows.ts'
import {
  changesOf,
  endedWarningStatements,
  healthStatements,
  laneStatements,
  mailStatements,
  type HealthChange,
} from './recorded-health.ts'
import { isRemoved, removalOf } from './removed-runs.ts'
import type { WebhookHealth } from '../webhooks/webhook-health.ts'
import {
  applyResult,
  type AppliedResult,
  type AttemptResult,
  type LaneRecord,
  type RecordingRules,
} from './recording-rules.ts'

export interface Recorded {
  /** Lanes that this daemon owns no more; their results were dropped, the new owner tries them again. */
  lostWebhookIds: Set<string>
  healthChanges: HealthChange[]
  /** Messages that no webhook has taken: they are due at the gateway now. */
  normalMessages: number
  /** Deliveries whose last attempt has failed. */
  exhausted: number
  /** To labs' admins: they are due now. */
  mails: number
}

const NOTHING_RECORDED = { healthChanges: [], normalMessages: 0, exhausted: 0, mails: 0 }

/**
 * @param now the database's UTC time
 * @param inDoubt a commit of these results was sent and its answer lost: those that are on disk already are left out
 * @param known what the caller's earlier batches left behind
 */
export async function recordAttempts(
  batch: BatchPool,
  token: string,
  results: AttemptResult[],
  now: Date,
  rules: RecordingRules,
  inDoubt = false,
  known = new KnownLanes(),
): Promise<Recorded> {
  const healthy = inDoubt ? undefined : known.healthyLanes(token, results)
  // Until it has committed, nobody knows how the lanes stand.
  known.forget(results)
  const successes = healthy && (await recordSuccesses(batch, token, results, now, rules, healthy, known))
  return successes ?? recordAll(batch, token, results, now, rules, inDoubt, known)
}

/**
 * Successes of webhooks that are healthy: there is nothing to judge, so the webhooks' rows are neither locked nor read.
 * @param lanes changed by the call
 * @returns undefined, with nothing written, when a lane is not as it was known
 */
async function recordSuccesses(
  batch: BatchPool,
  token: string,
  results: AttemptResult[],
  now: Date,
  rules: RecordingRules,
  lanes: Map<string, LaneRecord>,
  known: KnownLanes,
): Promise<Recorded | undefined> {
  const messageIds = messageIdsOf(results)
  const removal = removalOf(results)
  const locks = [
    moveStatement(token, lanes, results),
    ...(messageIds.length > 0 ? [lockMessagesStatement(messageIds)] : []),
  ]
  return batch.transaction(async (send) => {
    const asked = send([...locks, ...removal.statements])
    // Put together while the server works on that; its fault is met below.
    asked.catch(() => {})
    // A loop, here and below: a function that is made anew for each batch is compiled anew after each look through the heap.
    const applied: AppliedResult[] = []
    for (const result of results) applied.push(applyResult(lanes.get(result.webhookId)!, result, now, rules))
    const endedCopies = endedCopiesOf(applied)
    const statements = [...attemptStatements(applied, now), ...copyEndStatements(endedCopies, now), COMMIT]
    const [moved, ...others] = await asked
    if (!haveAllMoved(moved!, lanes) || !isRemoved(removal, others.slice(locks.length - 1))) return undefined
    const written = await send(statements)
    known.learn(token, lanes.values())
    const normalMessages = countNormal(endedCopies, written.slice(0, -1))
    return { lostWebhookIds: new Set(), ...NOTHING_RECORDED, normalMessages }
  })
}

async function recordAll(
  batch: BatchPool,
  token: string,
  results: AttemptResult[],
  now: Date,
  rules: RecordingRules,
  inDoubt: boolean,
  known: KnownLanes,
): Promise<Recorded> {
  const webhookIds = [...new Set(results.map((result) => result.webhookId))].sort()
  const messageIds = messageIdsOf(results)
  // Read under the lanes' locks: the transaction that was cut off either has committed or never will.
  const onDisk = inDoubt ? recordedStatements(results) : []
  return batch.transaction(async (send) => {
    // Lock order everywhere: webhook, lane, message, others, each by id. Health is judged under the webhook's lock.
    const [webhooks, lanes, ...others] = await send([
      {
        sql: `SELECT id, state, epoch, first_failure_at, failed_attempts, last_error, warned_at FROM webhooks
              FORCE INDEX (PRIMARY) WHERE id IN (?) ORDER BY id FOR UPDATE`,
        values: [webhookIds],
      },
      {
        // By the primary key: by its owner a lane is found among all of this daemon's, and each would be locked.
        sql: `SELECT webhook_id, last_seq, queue_moves FROM lanes FORCE INDEX (PRIMARY)
              WHERE webhook_id IN (?) AND owner = ? ORDER BY webhook_id FOR UPDATE`,
        values: [webhookIds, token],
      },
      ...(messageIds.length > 0 ? [lockMessagesStatement(messageIds)] : []),
      ...onDisk,
    ])
    const recorded = new Set(others.slice(others.length - onDisk.length).flatMap((rows) => rows.map(keyOfRow)))
    const before = readLanes(webhooks!, lanes!)
    const after = new Map([...before].map(([id, lane]) => [id, { ...lane }]))
    const lostWebhookIds = new Set(webhookIds.filter((id) => !before.has(id)))
    if (before.size === 0) return { lostWebhookIds, ...NOTHING_RECORDED }
    const applied = results.flatMap((result) => {
      const lane = after.get(result.webhookId)
      return lane && !recorded.has(keyOf(result)) ? [applyResult(lane, result, now, rules)] : []
    })
    if (applied.length === 0) return { lostWebhookIds, ...NOTHING_RECORDED }
    const endedCopies = endedCopiesOf(applied)
    const changes = changesOf(before, after, applied)
    const mails = mailStatements(applied, now)
    const written = await send([
      ...removedStatements(applied.map(({ result }) => result)),
      ...attemptStatements(applied, now),
      ...mails,
      ...endedWarningStatements(after, applied),
      ...healthStatements(before, after, now),
      ...laneStatements(after, changes, now),
      // Behind the copies' own rows, which they look for.
      ...copyEndStatements(endedCopies, now),
      COMMIT,
    ])
    known.learn(token, after.values())
    const normalMessages = countNormal(endedCopies, written.slice(0, -1))
    const exhausted = applied.filter(({ delivery }) => 'status' in delivery && delivery.status === 'exhausted').length
    return { lostWebhookIds, healthChanges: changes, normalMessages, exhausted, mails: mails.length }
  })
}

const keyOf = ({ webhookId, eventId, n }: AttemptResult) => `${webhookId} ${eventId} ${n}`
const keyOfRow = (row: BatchResult[number]) => `${row.webhook_id} ${row.event_id} ${row.n}`

function readLanes(webhooks: BatchResult, lanes: BatchResult): Map<string, LaneRecord> {
  const rowsOfLanes = new Map(lanes.map((row) => [row.webhook_id as string, row]))
  const records = new Map<string, LaneRecord>()
  for (const row of webhooks) {
    const lane = rowsOfLanes.get(row.id)
    if (!lane) continue
    const health: WebhookHealth = {
      firstFailureAt: row.first_failure_at,
      failedAttempts: row.failed_attempts,
      lastError: row.last_error,
      warnedAt: row.warned_at,
    }
    records.set(row.id, {
      webhookId: row.id,
      state: row.state,
      epoch: row.epoch,
      health,
      seq: Number(lane.last_seq),
      moves: lane.queue_moves,
    })
  }
  return records
}

const INSERT_EARLIER = `INSERT INTO earlier_attempts
  (webhook_id, event_id, n, recorded_at, seq, started_at, duration_ms, class, status, error, answer) VALUES ?`

/** The attempt that ends a delivery stands in the delivery's own row: most need no other one. */
function attemptStatements(applied: AppliedResult[], now: Date): Statement[] {
  const ended: EndedRow[] = []
  const earlier: unknown[][] = []
  const retried: unknown[][] = []
  for (const { result, seq, delivery } of applied) {
    const { webhookId, eventId, n, startedAt, durationMs, status, error, answer } = result
    if ('retryAt' in delivery) {
      const attempt = [seq, startedAt, Math.round(durationMs), result.class, status, error, answer]
      earlier.push([webhookId, eventId, n, now, ...attempt])
      retried.push([webhookId, delivery.retryAt, eventId, n, result.epoch, delivery.earlyAttempts])
      continue
    }
    ended.push({
      webhookId,
      eventId,
      status: delivery.status,
      attempts: n,
      seq,
      startedAt,
      durationMs,
      class: result.class,
      httpStatus: status,
      error,
      answer,
    })
  }
  return [
    ...endedStatements(ended, now),
    ...unlessEmpty(earlier, INSERT_EARLIER),
    ...unlessEmpty(
      retried,
      'INSERT INTO delivery_queue (webhook_id, due_at, event_id, attempts, epoch, early_attempts) VALUES ?',
    ),
    ...keepErased(applied, now),
  ]
}

/** What was erased while its attempt was under way is not sent again. */
function keepErased(applied: AppliedResult[], now: Date): Statement[] {
  const retried: AttemptResult[] = []
  for (const { result, delivery } of applied) if ('retryAt' in delivery) retried.push(result)
  return retried.length > 0 ? [keepErasedStatement(retried, now)] : []
}

function messageIdsOf(results: AttemptResult[]): string[] {
  const ids = new Set<string>()
  for (const { isMessage, eventId } of results) if (isMessage) ids.add(eventId)
  return [...ids].sort()
}

function endedCopiesOf(applied: AppliedResult[]): EndedCopy[] {
  const ended: EndedCopy[] = []
  for (const { result, copyEnd } of applied) {
    if (result.isMessage && copyEnd) ended.push({ eventId: result.eventId, end: copyEnd })
  }
  return ended
}

function unlessEmpty(rows: unknown[][], sql: string): Statement[] {
  return rows.length > 0 ? [{ sql, values: [rows] }] : []
}
