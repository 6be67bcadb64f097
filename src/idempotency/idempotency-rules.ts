/**
 * What an `Idempotency-Key` is, which answers are kept for it, and what a repeat of the request is told (decisions 9). Pure.
 */
import { createHash } from 'node:crypto'
import type { Reply } from '../reply.ts'
import { hmacSha256, type Keys } from '../crypto.ts'
import { toErrorResponse } from '../error-response.ts'
import { badRequest, conflict, DomainError, type ErrorExtras, type ErrorKind } from '../errors.ts'

/** Those that create something: their handlers claim the key and record the answer in their own transaction. */
const IDEMPOTENT_OPERATIONS = new Set([
  ...['subscribeWebhook', 'createEntry', 'createPreBooking', 'startRecovery'],
  ...['recordMessage', 'sendReport', 'sendBill', 'sendBooking', 'sendPhlebotomist', 'sendQuotation'],
  ...['createAccount', 'issueClientSecret', 'rotateClientSecret', 'createOperatorKey', 'createAccountWebhook'],
  ...['createLab', 'createParty', 'createTelecaller', 'createPhlebotomist', 'createTest', 'createPackage'],
  ...['createImport', 'createPatient', 'createStaffEntry', 'billPreBooking', 'billBooking', 'createBill'],
  ...['createReport', 'startAccountRecovery', 'startErasure'],
])

/** How long a key stands for its first answer. */
export const KEPT_MS = 24 * 60 * 60 * 1000

/** The first request has 4 s for the database and mostly needs a few milliseconds. */
const RETRY_AFTER_SECONDS = 1

/** What a key stands for: one caller's request to one operation. */
export interface KeyScope {
  /** The integrator's account, or the operator key. */
  callerId: string
  operation: string
  keyHash: Buffer
}

/** What the handler replied. */
interface FirstReply {
  reply: Reply
  /** The database's time, in milliseconds. Until then the request may still be running, and this is what was so far. */
  unfinishedUntilMs?: number
}

/** A first answer: a reply, or the error that the handler refused with. */
export type FirstAnswer =
  FirstReply | { refusal: { kind: ErrorKind; code: string; details: string; extras: ErrorExtras } }

export function isIdempotentOperation(operationId: string): boolean {
  return IDEMPOTENT_OPERATIONS.has(operationId)
}

/** @throws 400 for anything but 1 to 255 visible ASCII characters; two headers arrive as one with a space */
export function requireSoundKey(key: string): void {
  if (/^[\x21-\x7e]{1,255}$/.test(key)) return
  const fault = 'must be 1 to 255 visible characters, without spaces'
  throw badRequest(`Idempotency-Key ${fault}`, 'invalid_request', 'Idempotency-Key', fault)
}

/** What a key stands for, beside whose it is. */
export interface KeyedRequest {
  /** Undefined where there is none, which is as good as an empty one. */
  body: unknown
  /** The parameters of its path and its query, as the contract knows them: what the request is about. */
  path: Record<string, unknown>
  query: Record<string, unknown>
}

/**
 * The same for the same JSON, however its fields are ordered and spaced: clients serialise a retry anew. Keyed, because of an order to
 * erase a number ten digits are all there is to try out.
 */
export function hashRequest(keys: Keys, { body = {}, path, query }: KeyedRequest): Buffer {
  return hmacSha256(keys.request, canonicalJson({ body, path, query }))
}

/** Of the versions before, whose rows serve for another day. */
export function formerHash({ body, path }: KeyedRequest): Buffer {
  const asked = Object.keys(path).length > 0 ? { path, body } : body
  return createHash('sha256').update(canonicalJson(asked), 'utf8').digest()
}

function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_, item: unknown) => {
    if (typeof item !== 'object' || item === null || Array.isArray(item)) return item
    return Object.fromEntries(Object.entries(item).sort(([a], [b]) => (a < b ? -1 : 1)))
  })
}

/** A key that is as old as this or older counts as never seen. */
export function isExpired(createdAt: Date, now: Date): boolean {
  return now.getTime() - createdAt.getTime() >= KEPT_MS
}

export function statusOf(answer: FirstAnswer): number {
  return 'reply' in answer ? answer.reply.status : toErrorResponse(toError(answer.refusal), '').status
}

/** Undefined for what says nothing of the request itself: 401, 429 and everything of ours (5xx). */
export function refusalToKeep(error: unknown): FirstAnswer | undefined {
  if (!(error instanceof DomainError)) return undefined
  const { kind, code, message: details, extras } = error
  const answer = { refusal: { kind, code, details, extras } }
  const status = statusOf(answer)
  return status === 401 || status === 429 || status >= 500 ? undefined : answer
}

/** Thrown where the key decides the answer: whatever the transaction has done so far is rolled back. */
export class DecidedByKey extends Error {
  readonly answer: Reply | DomainError
  /** What is kept is not the last word yet, which may come soon. */
  readonly isUnfinished: boolean

  constructor(answer: Reply | DomainError, { isUnfinished = false } = {}) {
    super('the Idempotency-Key decides the answer')
    this.answer = answer
    this.isUnfinished = isUnfinished
  }
}

/** @param nowMs the database's time */
export function replayed(first: FirstAnswer, nowMs: number): DecidedByKey {
  if ('reply' in first && (first.unfinishedUntilMs ?? 0) > nowMs) return inProgress({ isUnfinished: true })
  const answer = 'reply' in first ? first.reply : toError(first.refusal)
  const mark = { 'Idempotent-Replayed': 'true' }
  if (!(answer instanceof DomainError)) {
    return new DecidedByKey({ ...answer, headers: { ...answer.headers, ...mark } })
  }
  const { kind, code, message, extras } = answer
  return new DecidedByKey(new DomainError(kind, code, message, { ...extras, headers: { ...extras.headers, ...mark } }))
}

/** The first answer is gone, and what it told of is not made anew. */
export function erasedSince(): DecidedByKey {
  return new DecidedByKey(conflict('what this Idempotency-Key made has been erased since', 'erased'))
}

export function mismatch(): DecidedByKey {
  const details = 'this Idempotency-Key was used with another body'
  return new DecidedByKey(new DomainError('unprocessable', 'idempotency_mismatch', details))
}

export function inProgress(state = { isUnfinished: false }): DecidedByKey {
  const details = 'a request with this Idempotency-Key is still running'
  const retryAfter = { retryAfterSeconds: RETRY_AFTER_SECONDS }
  return new DecidedByKey(conflict(details, 'idempotency_in_progress', retryAfter), state)
}

function toError({
  kind,
  code,
  details,
  extras,
}: {
  kind: ErrorKind
  code: string
  details: string
  extras: ErrorExtras
}) {
  return new DomainError(kind, code, details, extras)
}
