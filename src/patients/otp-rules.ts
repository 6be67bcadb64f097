/**
 * One-time passwords: when one is sent, when one serves, and when a contact is locked (decisions 8). Pure but for the random
 * digits.
 */
import { randomInt } from 'node:crypto'
import { equalInConstantTime, hmacSha256, type Keys } from '../crypto.ts'
import { DomainError, unauthorized } from '../errors.ts'

const DIGITS = 6
export const CODE_TTL_MS = 5 * 60_000
/** Tries of one code. */
const MAX_TRIES = 5
/** A request this soon after a code that still serves is about that same code. */
const REPEAT_MS = 30_000
/** How far ahead the clock of another process may be. A code that was sent later is one before the clock was set back. */
export const CLOCK_TOLERANCE_MS = 5000
/** [how many codes may be sent, in which time] */
const SHORT_LIMIT: [number, number] = [5, 10 * 60_000]
const DAY_LIMIT: [number, number] = [10, 24 * 3600_000]
/** How far back sent codes count. */
export const LONGEST_LIMIT_MS = DAY_LIMIT[1]
/** Wrong tries in a row, over all codes (NIST SP 800-63B: a new code must not reset the count). */
const MAX_FAILURES_IN_ROW = 20
const LOCK_MS = 24 * 3600_000

export interface OtpContact {
  hash: Buffer
  accountId: string
  contactSealed: Buffer
  /** The one code that is alive. */
  codeId: string | null
  failuresInRow: number
  lockedUntil: Date | null
  /** Raised by each login: a patient token carries the one that it was issued under. */
  loginEpoch: number
}

export interface OtpCode {
  id: string
  codeHash: Buffer
  tries: number
  sentAt: Date
  expiresAt: Date
  usedAt: Date | null
}

/** Finds a contact's row without its number. Keyed: ten digits are soon tried out against a plain hash. */
export function contactHash(keys: Keys, accountId: string, contact: string): Buffer {
  return hmacSha256(keys.otp, `contact:${accountId}:${contact}`)
}

/** What the encrypted number is bound to. */
export function contactSealName(hash: Buffer): string {
  return `otp-contact:${hash.toString('hex')}`
}

export function newCode(): string {
  return String(randomInt(10 ** DIGITS)).padStart(DIGITS, '0')
}

/** Bound to the code's own row: the same digits in another row have another hash. */
export function codeHash(keys: Keys, codeId: string, code: string): Buffer {
  return hmacSha256(keys.otp, `code:${codeId}:${code}`)
}

export function smsText(code: string): string {
  return `${code} is your login code. It serves once and for 5 minutes. Do not share it with anybody.`
}

/** `repeat`: another token for the code that is alive, no SMS. `send`: a new code. */
export type RequestVerdict = 'repeat' | 'send'

/**
 * @param alive the contact's last code
 * @param sentAt when codes were sent in the last day
 * @throws 429 while the contact is locked or too many were sent
 */
export function judgeOtpRequest(
  contact: OtpContact,
  alive: OtpCode | undefined,
  sentAt: Date[],
  now: Date,
): RequestVerdict {
  requireUnlocked(contact, now)
  const isRecent = alive && !isAhead(alive.sentAt, now) && now.getTime() - alive.sentAt.getTime() < REPEAT_MS
  // One without tries serves nobody: a token for it could only be refused.
  if (isRecent && !alive.usedAt && !isSpent(alive)) return 'repeat'
  const past = sentAt.filter((time) => !isAhead(time, now))
  // However often the clock is set back within a day, that day has no more codes.
  const ofTheDay = sentAt.filter((time) => time.getTime() - now.getTime() <= LONGEST_LIMIT_MS)
  const waitMs = Math.max(freeInMs(past, SHORT_LIMIT, now), freeInMs(ofTheDay, DAY_LIMIT, now))
  if (waitMs > 0) throw otpLimited(waitMs)
  return 'send'
}

/** When the code that fills a limit has left its time. */
function freeInMs(sentAt: Date[], [count, windowMs]: [number, number], now: Date): number {
  const newestFirst = sentAt.map((time) => time.getTime()).toSorted((a, b) => b - a)
  return (newestFirst[count - 1] ?? -Infinity) + windowMs - now.getTime()
}

/** `right`: logged in. `wrong`: a try of the code is gone. `dead`: it serves no more, whatever the digits. */
export type TryVerdict = 'right' | 'wrong' | 'dead'

/**
 * @param code what the token stands for
 * @throws 429 while the contact is locked, also for the right digits
 */
export function judgeOtpTry(contact: OtpContact, code: OtpCode, sentHash: Buffer, now: Date): TryVerdict {
  requireUnlocked(contact, now)
  const fits = equalInConstantTime(code.codeHash, sentHash)
  const isInTime = code.expiresAt > now && !isAhead(code.sentAt, now)
  const isAlive = contact.codeId === code.id && !code.usedAt && isInTime && !isSpent(code)
  if (!isAlive) return 'dead'
  return fits ? 'right' : 'wrong'
}

/** All its tries are gone. */
function isSpent({ tries }: OtpCode): boolean {
  return tries >= MAX_TRIES
}

/** The contact after one more wrong try. Only a login sets the count back, so that after a lock one try is left a day. */
export function afterFailure(contact: OtpContact, now: Date): Pick<OtpContact, 'failuresInRow' | 'lockedUntil'> {
  const failuresInRow = contact.failuresInRow + 1
  const isOver = failuresInRow >= MAX_FAILURES_IN_ROW
  return { failuresInRow, lockedUntil: isOver ? new Date(now.getTime() + LOCK_MS) : null }
}

/** Whether a code serves no more after one more wrong try: an SMS with it that still waits would only mislead. */
export function servesNoMore(code: OtpCode, { lockedUntil }: Pick<OtpContact, 'lockedUntil'>): boolean {
  return lockedUntil !== null || isSpent({ ...code, tries: code.tries + 1 })
}

/**
 * A lock that ends later than any that begins now was made before the clock was set back: it is one of a day from now. Written before
 * it is answered, or each answer would name another end.
 * @returns when it ends instead; undefined: it stands as it is
 */
export function lockMovedBack({ lockedUntil }: OtpContact, now: Date): Date | undefined {
  const latestMs = now.getTime() + LOCK_MS
  return lockedUntil && lockedUntil.getTime() > latestMs + CLOCK_TOLERANCE_MS ? new Date(latestMs) : undefined
}

function requireUnlocked({ lockedUntil }: OtpContact, now: Date): void {
  if (lockedUntil && lockedUntil > now) throw otpLimited(Math.min(lockedUntil.getTime() - now.getTime(), LOCK_MS))
}

function isAhead(sentAt: Date, now: Date): boolean {
  return sentAt.getTime() - now.getTime() > CLOCK_TOLERANCE_MS
}

export function otpLimited(waitMs: number): DomainError {
  return new DomainError('too_many_requests', 'otp_limited', 'too many attempts for this contact', {
    retryAfterSeconds: waitMs / 1000,
  })
}

/** One answer for wrong, used, expired and unknown. */
export function invalidOtp(): DomainError {
  return unauthorized('invalid OTP', 'invalid_otp')
}
