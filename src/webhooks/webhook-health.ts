/**
 * The life cycle of a failing webhook: a warning after 12 hours, deletion after 24 (specification, States and transitions;
 * decisions 6). A function of this webhook's own attempts and the clock, and of nothing else. Pure: it returns what is to
 * be done as data, and the transaction that records the attempts does it, under the webhook's row lock.
 */
export interface WebhookHealth {
  /** End of the first failed attempt since creation, a 2xx, or reactivation; null: not failing. */
  firstFailureAt: Date | null
  /** Failed attempts recorded since then. */
  failedAttempts: number
  lastError: string | null
  /** When the warning of this failing period was due; null: not yet. */
  warnedAt: Date | null
}

export interface HealthLimits {
  /** A failed attempt from here on brings the warning. */
  warnAfterSeconds: number
  /** From here on the clock brings it. */
  warnByClockSeconds: number
  /** A failed attempt from here on brings the deletion. */
  deleteAfterSeconds: number
  /** The deletion waits so long after the warning. 0: the letter of the specification. */
  minWarningLeadSeconds: number
}

export type HealthEffect = 'warn' | 'auto_delete'

export interface Judgement {
  health: WebhookHealth
  /** In this order. */
  effects: HealthEffect[]
}

export type AttemptVerdict = { ok: true } | { ok: false; error: string }

export const HEALTHY: WebhookHealth = { firstFailureAt: null, failedAttempts: 0, lastError: null, warnedAt: null }

/**
 * What an attempt that is recorded now makes of a webhook's health.
 * @param endedAt when the attempt ended, in the database's UTC time
 */
export function judgeAttempt(
  health: WebhookHealth,
  verdict: AttemptVerdict,
  endedAt: Date,
  limits: HealthLimits,
): Judgement {
  // Any single 2xx clears everything; the period starts anew with the next failure.
  if (verdict.ok) return { health: HEALTHY, effects: [] }
  // Later failures never move it.
  const firstFailureAt = notAheadOf(endedAt, health.firstFailureAt) ?? endedAt
  const warnedAt = notAheadOf(endedAt, health.warnedAt)
  const failing: WebhookHealth = {
    firstFailureAt,
    failedAttempts: health.failedAttempts + 1,
    lastError: verdict.error,
    warnedAt: warnedAt && warnedAt < firstFailureAt ? firstFailureAt : warnedAt,
  }
  const failingSeconds = secondsBetween(failing.firstFailureAt!, endedAt)
  const effects: HealthEffect[] = []
  if (failing.warnedAt === null && failingSeconds >= limits.warnAfterSeconds) {
    failing.warnedAt = endedAt
    effects.push('warn')
  }
  // The clock may have warned between this attempt's end and its record: the warning stands, and 0 asks for no time behind it.
  const leadSeconds = failing.warnedAt === null ? -1 : Math.max(0, secondsBetween(failing.warnedAt, endedAt))
  if (failingSeconds >= limits.deleteAfterSeconds && leadSeconds >= limits.minWarningLeadSeconds) {
    effects.push('auto_delete')
  }
  return { health: failing, effects }
}

/**
 * What the clock alone makes of it: the warning, when no attempt brought it in time. Never a deletion.
 * @param now the database's UTC time
 */
export function judgeClock(health: WebhookHealth, now: Date, limits: HealthLimits): Judgement {
  const due =
    health.firstFailureAt !== null &&
    health.warnedAt === null &&
    secondsBetween(health.firstFailureAt, now) >= limits.warnByClockSeconds
  return due ? { health: { ...health, warnedAt: now }, effects: ['warn'] } : { health, effects: [] }
}

/** Attempts that overlap end in no order; a time that lies further ahead was written by a clock that has been set back since. */
const AHEAD_MS = 60_000

function notAheadOf(endedAt: Date, time: Date | null): Date | null {
  return time && time.getTime() - endedAt.getTime() > AHEAD_MS ? endedAt : time
}

function secondsBetween(from: Date, to: Date): number {
  return (to.getTime() - from.getTime()) / 1000
}
