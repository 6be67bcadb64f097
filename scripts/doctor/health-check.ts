/**
 * A webhook's health is a function of its own attempts: they are replayed through the rule that judged them.
 */
import type { Knex } from 'knex'
import { HEALTHY, judgeAttempt, type WebhookHealth } from '../../src/webhooks/webhook-health.ts'
import { MOST_OF_A_CHECK, type Examined, type Finding } from './finding.ts'

const WEBHOOKS_AT_A_TIME = 500
const ATTEMPTS_AT_A_TIME = 200
/** An attempt is judged by the time at which its batch began, and that may have waited so long for the webhook's row. */
const RECORDED_WITHIN_MS = 10_000

interface StoredWebhook {
  id: string
  state: string
  activeFrom: Date
  lastSeq: number
  health: WebhookHealth
}

/** Deleted webhooks are left out: nothing reads their record any more. */
export async function checkHealth(examined: Examined): Promise<Finding[]> {
  const findings: Finding[] = []
  let after = ''
  for (;;) {
    const webhooks = await listWebhooks(examined.knex, after)
    for (const webhook of webhooks) {
      const finding = await checkWebhook(examined, webhook)
      if (finding) findings.push(finding)
      if (findings.length >= MOST_OF_A_CHECK) return findings
    }
    const last = webhooks.at(-1)
    if (!last) return findings
    after = last.id
  }
}

async function listWebhooks(knex: Knex, after: string): Promise<StoredWebhook[]> {
  const rows = await knex('webhooks as w')
    .join('lanes as l', 'l.webhook_id', 'w.id')
    .where('w.id', '>', after)
    .whereNot('w.state', 'deleted')
    .orderBy('w.id')
    .limit(WEBHOOKS_AT_A_TIME)
    .select('w.*', 'l.last_seq')
  return rows.map((row) => ({
    id: row.id,
    state: row.state,
    activeFrom: row.active_from,
    lastSeq: Number(row.last_seq),
    health: {
      firstFailureAt: row.first_failure_at,
      failedAttempts: row.failed_attempts,
      lastError: row.last_error,
      warnedAt: row.warned_at,
    },
  }))
}

async function checkWebhook(examined: Examined, webhook: StoredWebhook): Promise<Finding | undefined> {
  const attempts = await attemptsSinceSuccess(examined.knex, webhook)
  if (!attempts) return undefined
  const replayed = replay(attempts, examined, webhook.health.warnedAt)
  const { firstFailureAt, failedAttempts, lastError } = webhook.health
  const differs =
    replayed.firstFailureAt?.getTime() !== firstFailureAt?.getTime() ||
    replayed.failedAttempts !== failedAttempts ||
    replayed.lastError !== lastError
  if (differs) {
    return finding(webhook, `its attempts make ${wordsOf(replayed)}, its row says ${wordsOf(webhook.health)}`)
  }
  const warning = warningFault(webhook.health, replay(attempts, examined), examined)
  return warning === undefined ? undefined : finding(webhook, warning)
}

function finding(webhook: StoredWebhook, what: string): Finding {
  return { check: 'health_differs', subject: webhook.id, sentence: `webhook ${webhook.id}: ${what}` }
}

/**
 * What attempts, in the order in which they were recorded, make of a webhook that was healthy.
 * @param warnedAt when it was warned, by the clock maybe, which lets a later attempt bring the deletion
 */
export function replay(
  attempts: Omit<JudgedAttempt, 'seq'>[],
  { limits }: Pick<Examined, 'limits'>,
  warnedAt: Date | null = null,
): WebhookHealth {
  let health = HEALTHY
  for (const attempt of attempts) {
    const isWarned = health.firstFailureAt !== null && warnedAt !== null && warnedAt < attempt.endedAt
    if (isWarned) health = { ...health, warnedAt: health.warnedAt ?? warnedAt }
    const verdict = attempt.ok ? ({ ok: true } as const) : ({ ok: false, error: attempt.error } as const)
    const judged = judgeAttempt(health, verdict, attempt.endedAt, limits)
    health = judged.health
    // What was under way then is logged, and judges nothing any more.
    if (judged.effects.includes('auto_delete')) break
  }
  return health
}

/** The clock may have warned before an attempt did, and no earlier than its own time. */
export function warningFault(
  stored: WebhookHealth,
  replayed: WebhookHealth,
  { limits }: Pick<Examined, 'limits'>,
): string | undefined {
  const { warnedAt, firstFailureAt } = stored
  const byClockAt = firstFailureAt === null ? Infinity : firstFailureAt.getTime() + limits.warnByClockSeconds * 1000
  if (replayed.warnedAt !== null && (warnedAt === null || warnedAt.getTime() > replayed.warnedAt.getTime())) {
    const lateMs = warnedAt === null ? Infinity : warnedAt.getTime() - replayed.warnedAt.getTime()
    // The clock came between the attempt's time and its record, which found the webhook warned.
    if (lateMs <= RECORDED_WITHIN_MS && warnedAt!.getTime() >= byClockAt) return undefined
    return `its attempts bring the warning at ${iso(replayed.warnedAt)}, its row says ${iso(warnedAt)}`
  }
  const byAttempt = warnedAt !== null && warnedAt.getTime() === replayed.warnedAt?.getTime()
  if (warnedAt === null || byAttempt) return undefined
  return warnedAt.getTime() < byClockAt ? `it was warned at ${iso(warnedAt)}, before the clock may do so` : undefined
}

interface JudgedAttempt {
  seq: number
  ok: boolean
  error: string
  endedAt: Date
}

/**
 * The attempts from the last success on, in the order in which they were recorded: everything before it was cleared by it.
 * @returns undefined where some of them were purged, so that nothing can be said
 */
async function attemptsSinceSuccess(knex: Knex, webhook: StoredWebhook): Promise<JudgedAttempt[] | undefined> {
  const judged: JudgedAttempt[] = []
  let before = webhook.lastSeq + 1
  for (;;) {
    const rows = await listAttempts(knex, webhook.id, before)
    for (const row of rows) {
      // Numbers are given without a gap: one that is missing was purged.
      if (row.seq !== before - 1) return undefined
      before = row.seq
      // Of the time before its reactivation, with a clean record, unless it was still under way then.
      if (row.endedAt < webhook.activeFrom) return judged.reverse()
      // What was asked for by hand, or had begun before the reactivation, judges nothing.
      if (row.isTest || row.startedAt < webhook.activeFrom) continue
      judged.push(row)
      if (row.ok && !mayHaveComeTooLate(row, webhook)) return judged.reverse()
    }
    if (before === 1) return judged.reverse()
    if (rows.length === 0) return undefined
  }
}

/** A success that was under way at the deletion is logged behind it, and clears nothing any more. */
function mayHaveComeTooLate(success: JudgedAttempt, { state, health }: StoredWebhook): boolean {
  return state === 'auto_deleted' && health.firstFailureAt !== null && success.endedAt > health.firstFailureAt
}

async function listAttempts(knex: Knex, webhookId: string, before: number) {
  // Asked of each table by its key: the webhook's own rows, and no others.
  const part = (table: string) =>
    `SELECT a.event_id, a.seq, a.started_at, a.duration_ms, a.class, a.error FROM ${table} a
     WHERE a.webhook_id = ? AND a.class IS NOT NULL AND a.seq < ? ORDER BY a.seq DESC LIMIT ?`
  const values = [webhookId, before, ATTEMPTS_AT_A_TIME]
  const [rows] = await knex.raw(
    `SELECT a.*, e.type FROM ((${part('earlier_attempts')}) UNION ALL (${part('deliveries')})) a
     LEFT JOIN events e ON e.id = a.event_id ORDER BY a.seq DESC LIMIT ?`,
    [...values, ...values, ATTEMPTS_AT_A_TIME],
  )
  return (rows as Record<string, any>[]).map((row) => ({
    seq: Number(row.seq),
    startedAt: row.started_at as Date,
    endedAt: new Date(row.started_at.getTime() + row.duration_ms),
    ok: row.class === 'ok',
    error: (row.error ?? row.class) as string,
    isTest: row.type === 'webhook.test',
  }))
}

function wordsOf({ firstFailureAt, failedAttempts, lastError }: WebhookHealth): string {
  if (firstFailureAt === null) return 'it healthy'
  return `it failing since ${iso(firstFailureAt)} with ${failedAttempts} failed attempts, the last with "${lastError}"`
}

function iso(at: Date | null): string {
  return at === null ? 'never' : at.toISOString()
}
