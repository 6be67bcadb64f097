/**
 * What a batch of attempts makes of its webhooks: the mails about them, the record of their failure, and what their lanes read.
 */
import type { Statement } from '../../db/batch.ts'
import { ENDING_TIME, endingTimeValues } from '../events/routing-time.ts'
import { newId } from '../ids.ts'
import { giveUpWarningsStatement, insertMailStatement } from '../mails/mails-repository.ts'
import type { HealthEffect, WebhookHealth } from '../webhooks/webhook-health.ts'
import type { AppliedResult, LaneRecord } from './recording-rules.ts'

export interface HealthChange {
  webhookId: string
  to: 'healthy' | 'failing' | 'auto_deleted'
}

/** Far beyond every retry: a lane that recovers reads all that waits. */
const EAGER_DAYS = 3650

/** Mails go out in the order of their ids: a warning before the deletion, also where one moment brings both. */
const LATER_MS = { warn: 0, auto_delete: 1 } as const satisfies Record<HealthEffect, number>

const MAIL_OF_EFFECT = { warn: 'warning', auto_delete: 'deletion' } as const satisfies Record<HealthEffect, string>

export function mailStatements(applied: AppliedResult[], now: Date): Statement[] {
  return applied.flatMap(({ result, effects }) =>
    effects.map(({ effect, health }) => {
      const id = newId(now.getTime() + LATER_MS[effect])
      return insertMailStatement(id, MAIL_OF_EFFECT[effect], result.webhookId, health, now)
    }),
  )
}

/** Behind the mails of the same batch. A webhook may be failing anew by the end of it, or be auto-deleted, which its warning goes before. */
export function endedWarningStatements(after: Map<string, LaneRecord>, applied: AppliedResult[]): Statement[] {
  return [...recoveredOf(applied)].flatMap((webhookId) => {
    const { state, health } = after.get(webhookId)!
    return state === 'active' ? [giveUpWarningsStatement(webhookId, health.firstFailureAt)] : []
  })
}

export function healthStatements(
  before: Map<string, LaneRecord>,
  after: Map<string, LaneRecord>,
  now: Date,
): Statement[] {
  const all: Statement[] = []
  for (const [webhookId, { health, state }] of after) {
    // A success of a healthy webhook changes nothing: no write.
    if (sameHealth(before.get(webhookId)!.health, health)) continue
    all.push({
      sql: 'UPDATE webhooks SET first_failure_at = ?, failed_attempts = ?, last_error = ?, warned_at = ? WHERE id = ?',
      values: [health.firstFailureAt, health.failedAttempts, health.lastError, health.warnedAt, webhookId],
    })
    if (state === before.get(webhookId)!.state) continue
    all.push(
      {
        // The record of its failure stays for the list of deactivated webhooks; reactivation clears it.
        sql: `UPDATE webhooks SET state = 'auto_deleted', epoch = epoch + 1, inactive_from = ${ENDING_TIME},
              deactivated_at = ?, updated_at = ? WHERE id = ?`,
        values: [...endingTimeValues(webhookId, now), now, now, webhookId],
      },
      { sql: 'DELETE FROM webhook_party_guards WHERE webhook_id = ?', values: [webhookId] },
    )
  }
  return all
}

export function laneStatements(after: Map<string, LaneRecord>, changes: HealthChange[], now: Date): Statement[] {
  const eagerUntil = new Date(now.getTime() + EAGER_DAYS * 86_400_000)
  const recovered = changes.filter(({ to }) => to === 'healthy').map(({ webhookId }) => webhookId)
  const failing = [...after.values()]
    .filter(({ health }) => health.firstFailureAt !== null)
    .map(({ webhookId }) => webhookId)
  return [
    {
      sql: 'INSERT INTO lanes (webhook_id, last_seq) VALUES ? ON DUPLICATE KEY UPDATE last_seq = VALUES(last_seq)',
      values: [[...after.values()].map(({ webhookId, seq }) => [webhookId, seq])],
    },
    // What waits for a later retry is read at once; no queue row is rewritten for it.
    ...unlessNone(
      recovered,
      'UPDATE lanes FORCE INDEX (PRIMARY) SET eager_until = ? WHERE webhook_id IN (?)',
      eagerUntil,
    ),
    ...unlessNone(
      failing,
      'UPDATE lanes FORCE INDEX (PRIMARY) SET eager_until = ? WHERE webhook_id IN (?) AND eager_until IS NOT NULL',
      null,
    ),
  ]
}

function unlessNone(webhookIds: string[], sql: string, value: Date | null): Statement[] {
  return webhookIds.length > 0 ? [{ sql, values: [value, webhookIds] }] : []
}

/** Webhooks that a result of the batch brought back, whatever came behind it. */
function recoveredOf(applied: AppliedResult[]): Set<string> {
  return new Set(applied.flatMap(({ result, recovers }) => (recovers ? [result.webhookId] : [])))
}

/** One that has failed and recovered within the batch has recovered: what failed in it waits for a retry. */
export function changesOf(
  before: Map<string, LaneRecord>,
  after: Map<string, LaneRecord>,
  applied: AppliedResult[],
): HealthChange[] {
  const recovered = recoveredOf(applied)
  const changes: HealthChange[] = []
  for (const [webhookId, { state, health }] of after) {
    const was = before.get(webhookId)!
    const failing = health.firstFailureAt !== null
    if (state !== was.state) changes.push({ webhookId, to: 'auto_deleted' })
    else if (!failing && recovered.has(webhookId)) changes.push({ webhookId, to: 'healthy' })
    else if (failing && was.health.firstFailureAt === null) changes.push({ webhookId, to: 'failing' })
  }
  return changes
}

function sameHealth(a: WebhookHealth, b: WebhookHealth): boolean {
  return (
    a.firstFailureAt?.getTime() === b.firstFailureAt?.getTime() &&
    a.failedAttempts === b.failedAttempts &&
    a.lastError === b.lastError &&
    a.warnedAt?.getTime() === b.warnedAt?.getTime()
  )
}
