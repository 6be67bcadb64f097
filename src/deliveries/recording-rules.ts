/**
 * What a batch of results changes: pure, so that it can be read and tested without a database. `attempts-repository.ts`
 * writes it down.
 */
import { endOfOldCopy, type CopyEnd } from '../messages/message-rules.ts'
import { judgeAttempt, type HealthEffect, type HealthLimits, type WebhookHealth } from '../webhooks/webhook-health.ts'
import type { HeldCopy } from './delivery-queue-repository.ts'
import { nextWaitMs } from './retry-schedule.ts'

/** One run of a lane, from its taking to its end. */
export interface LaneRun {
  /** Its lane was somebody else's, or nobody's, before it had ended: whoever owns it next sends again what is not recorded. */
  readonly isLost: boolean
}

export interface AttemptResult {
  /** The owner's token under which the attempt was made: a result of an ownership that has ended counts for nothing. */
  token: string
  /** Of which it is: under one token a lane may be lost and taken anew, and then what is recorded is the newer run's. */
  run?: LaneRun | undefined
  webhookId: string
  eventId: string
  /** The queue row's due time, part of its key. */
  dueAt: Date
  /** In the order in which the lane has read. */
  place: number
  /** As the lane holds its copy. */
  held?: HeldCopy | undefined
  /** Its lane's when its copy was read, or less: what has moved since then may stand between what stood side by side. */
  queueMoves?: number | undefined
  /** Number of this attempt, from 1. */
  n: number
  /** So many of those before it came before their time: an odd one is followed by another within the minute. */
  earlyAttempts: number
  epoch: number
  /** Asked for by hand: judges nothing, and is the only attempt. */
  isTest: boolean
  /** A copy of a message, whose end decides what becomes of the message. */
  isMessage: boolean
  startedAt: Date
  durationMs: number
  ok: boolean
  /** `ok`, or the kind of fault: a word from `attempt-faults.ts`. */
  class: string
  status: number | null
  /** For the log and the mails: never text from the remote side. */
  error: string | null
  /** The first 1 KB of the answer's body. */
  answer: Buffer | null
  retryAfterMs: number | undefined
}

export interface RecordingRules extends HealthLimits {
  retryScheduleSeconds: number[]
  /** From 0 to 1, for jitter. */
  random: () => number
}

/** A webhook and its lane as they are under their locks; changed as results are applied. */
export interface LaneRecord {
  webhookId: string
  state: string
  epoch: number
  health: WebhookHealth
  /** Number of the last attempt of this webhook. */
  seq: number
  /** How often others have changed its queue. */
  moves: number
}

export interface Retry {
  retryAt: Date
  earlyAttempts: number
}

/** What one result comes to. */
export interface AppliedResult {
  result: AttemptResult
  seq: number
  delivery: { status: 'delivered' | 'exhausted' | 'discarded' } | Retry
  /** A 2xx of a webhook that was failing. */
  recovers: boolean
  /** In this order, with the health that they are about. */
  effects: { effect: HealthEffect; health: WebhookHealth }[]
  /** What it means for the message; undefined: its copy waits for a further try. */
  copyEnd: CopyEnd | undefined
}

/**
 * Applies a result to its lane. Results that overlap in time count in the order in which they are applied.
 * @param lane changed by the call
 * @param now the database's UTC time
 */
export function applyResult(lane: LaneRecord, result: AttemptResult, now: Date, rules: RecordingRules): AppliedResult {
  lane.seq += 1
  const seq = lane.seq
  // A result of an epoch before, or of a webhook that was deleted meanwhile, is logged and judges nothing.
  const current = lane.state === 'active' && lane.epoch === result.epoch
  const judged = current && !result.isTest
  const recovers = judged && result.ok && lane.health.firstFailureAt !== null
  const effects = judged ? judge(lane, result, rules) : []
  if (result.ok) return { result, seq, delivery: { status: 'delivered' }, recovers, effects, copyEnd: 'taken' }
  const retry = judged ? retryOf(lane, result, now, rules) : undefined
  if (lane.state === 'active' && retry) return { result, seq, delivery: retry, recovers, effects, copyEnd: undefined }
  const status = current && !retry ? 'exhausted' : 'discarded'
  const copyEnd = current && lane.state === 'active' ? 'returned' : endOfOldCopy(lane, result.epoch)
  return { result, seq, delivery: { status }, recovers, effects, copyEnd }
}

function judge(lane: LaneRecord, result: AttemptResult, rules: RecordingRules): AppliedResult['effects'] {
  const endedAt = new Date(result.startedAt.getTime() + Math.round(result.durationMs))
  const verdict = result.ok ? ({ ok: true } as const) : ({ ok: false, error: result.error ?? result.class } as const)
  const { health, effects } = judgeAttempt(lane.health, verdict, endedAt, rules)
  lane.health = health
  if (effects.includes('auto_delete')) {
    lane.state = 'auto_deleted'
    lane.epoch += 1
  }
  return effects.map((effect) => ({ effect, health }))
}

/** Due so much later than it was sent, in milliseconds, an attempt has come before its time. The clocks are less than that apart. */
const EARLY_FROM_MS = 1000
/** What failed although its webhook had recovered is tried again after this time, in milliseconds, and then at its time. */
const EARLY_AGAIN_MS = 40_000

/** Attempts before their time come in pairs, and take nothing away from the schedule: an endpoint that is back for a moment would use it up. */
function retryOf(lane: LaneRecord, result: AttemptResult, now: Date, rules: RecordingRules): Retry | undefined {
  const isBefore = result.dueAt.getTime() - result.startedAt.getTime() >= EARLY_FROM_MS
  const isSecond = result.earlyAttempts % 2 === 1
  const earlyAttempts = result.earlyAttempts + (isBefore || isSecond ? 1 : 0)
  if (isBefore && !isSecond) {
    const againAtMs = now.getTime() + Math.max(EARLY_AGAIN_MS, result.retryAfterMs ?? 0)
    return { retryAt: new Date(Math.min(result.dueAt.getTime(), againAtMs)), earlyAttempts }
  }
  const verdictAtMs = (lane.health.firstFailureAt ?? now).getTime() + rules.deleteAfterSeconds * 1000
  const untilVerdictMs = Math.max(0, verdictAtMs - now.getTime())
  const failed = { n: result.n - earlyAttempts, retryAfterMs: result.retryAfterMs, untilVerdictMs }
  const waitMs = nextWaitMs(failed, rules.retryScheduleSeconds, rules.random())
  return waitMs === undefined ? undefined : { retryAt: new Date(now.getTime() + waitMs), earlyAttempts }
}
