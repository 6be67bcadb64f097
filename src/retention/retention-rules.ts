/**
 * How long things are kept, and how a purge paces itself. Pure.
 */
import { REFRESH_TOKEN_TTL_MS } from '../auth/token-rules.ts'
import { KEPT_MS as IDEMPOTENCY_KEPT_MS } from '../idempotency/idempotency-rules.ts'
import { CODE_TTL_MS, LONGEST_LIMIT_MS } from '../patients/otp-rules.ts'

const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS

/**
 * What is kept beyond its use: a request that found a row still good is over long before the row goes, and a clock that is
 * set back by less than this finds everything.
 */
const MARGIN_MS = HOUR_MS

export interface RetentionSettings {
  payloadRetentionDays: number
  logRetentionDays: number
}

/** What is older than these may go, unless it is pending or belongs to a failing webhook's current period. */
export interface Cutoffs {
  payloads: Date
  log: Date
  idempotencyKeys: Date
  /** For `expires_at`. */
  refreshTokens: Date
  /** Issued before this, a family has had no token for as long as one lives. */
  tokenFamilies: Date
  /** For `expires_at`: a code counts for the limits of the day in which it was sent. */
  otpCodes: Date
  otpTokens: Date
  otpContacts: Date
  sms: Date
  /** `YYYY-MM-DD`: earlier days are over in every time zone. */
  guardDay: string
}

/** @param now the database's UTC time */
export function cutoffsOf(now: Date, settings: RetentionSettings): Cutoffs {
  const ago = (ms: number) => new Date(now.getTime() - ms)
  return {
    payloads: ago(settings.payloadRetentionDays * DAY_MS),
    log: ago(settings.logRetentionDays * DAY_MS),
    idempotencyKeys: ago(IDEMPOTENCY_KEPT_MS + MARGIN_MS),
    refreshTokens: ago(MARGIN_MS),
    tokenFamilies: ago(REFRESH_TOKEN_TTL_MS + MARGIN_MS),
    otpCodes: ago(LONGEST_LIMIT_MS + MARGIN_MS),
    otpTokens: ago(CODE_TTL_MS + MARGIN_MS),
    otpContacts: ago(LONGEST_LIMIT_MS + MARGIN_MS),
    sms: ago(LONGEST_LIMIT_MS + MARGIN_MS),
    // Where it is earliest (UTC-12) the day began 12 h later than in UTC; one more day, so that no request at midnight is near.
    guardDay: ago(12 * HOUR_MS + DAY_MS)
      .toISOString()
      .slice(0, 10),
  }
}

/** The first failure's time is the end of its attempt, which is recorded a moment later, by a clock that may be set back between. */
const PERIOD_MARGIN_MS = DAY_MS

/**
 * Whether a delivery that ended then can have an attempt of the webhook's current failing period: those are what its health
 * is replayed from.
 */
export function isOfCurrentPeriod(endedAt: Date, firstFailureAt: Date): boolean {
  return endedAt.getTime() >= firstFailureAt.getTime() - PERIOD_MARGIN_MS
}

/** How often something is purged, and how soon another daemon takes over from one that died in the middle. */
export const PURGE_EVERY_MS = HOUR_MS
export const PURGE_LEASE_MS = 5 * 60_000

export const FIRST_BATCH_ROWS = 50
/** A batch of few rows takes as long as one of some more: what is left is the round trips. */
const MIN_BATCH_ROWS = 25
const MAX_BATCH_ROWS = 1000
/** A batch holds its locks for all of its time. Far below the 100 ms that nobody may wait for a purge. */
const TOO_LONG_MS = 40
const SHORT_MS = 15

/** The size of the next batch: what one took is the best guess at what the next will take. */
export function nextBatchRows(rows: number, tookMs: number): number {
  if (tookMs > TOO_LONG_MS) return Math.max(MIN_BATCH_ROWS, Math.floor(rows / Math.ceil(tookMs / TOO_LONG_MS + 1)))
  return tookMs < SHORT_MS ? Math.min(MAX_BATCH_ROWS, rows * 2) : rows
}

const MIN_PAUSE_MS = 5
const MAX_PAUSE_MS = 1000

/** Between two batches, so that a purge takes at most half of one connection's time, and less of a database under load. */
export function pauseMs(tookMs: number): number {
  return Math.min(MAX_PAUSE_MS, Math.max(MIN_PAUSE_MS, tookMs))
}
