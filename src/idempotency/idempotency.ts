/**
 * One request with an `Idempotency-Key`, from the look at what is known of its key to the answer that is kept for it.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Knex } from 'knex'
import { sendThrough, type Send, type Statement } from '../../db/batch.ts'
import type { Database } from '../../db/connection.ts'
import type { Reply } from '../reply.ts'
import { monotonicMs, type Clock } from '../clock.ts'
import { hashValue, seal, unseal, type Keys } from '../crypto.ts'
import { DomainError } from '../errors.ts'
import { claimKey, findKey, updateKeyStatement, type KeyRow } from './idempotency-keys-repository.ts'
import {
  DecidedByKey,
  erasedSince,
  formerHash,
  hashRequest,
  isExpired,
  isIdempotentOperation,
  mismatch,
  refusalToKeep,
  replayed,
  requireSoundKey,
  statusOf,
  type FirstAnswer,
  type KeyedRequest,
  type KeyScope,
} from './idempotency-rules.ts'

/** For a first request that is still running (decisions 9). */
const WAIT_MS = 1000
const LOOK_AGAIN_MS = 25

/** What a handler makes of its transaction: first `claim`, last `record`. Without a key both are nothing. */
export interface Idempotency {
  /** Whether the request has a key. */
  isKeyed: boolean
  /** @throws DecidedByKey where the request was made before, or is being made */
  claim(send: Send): Promise<void>
  /** Keeps the answer; to be committed with what it tells of. */
  record(reply: Reply, keeping?: Keeping): Statement[]
}

/** How an answer is kept. */
interface Keeping {
  /** Of the record it tells of, where that is a person's: an erasure of the person empties it. */
  recordId?: string | undefined
  /** In milliseconds: it will be kept anew when the request has ended, and repeats are told to wait until then, or for so long. */
  unfinishedForMs?: number | undefined
}

/** The same, as the API sees it around a handler. */
export interface RequestIdempotency extends Idempotency {
  /**
   * Answers a repeat without asking the handler, so that it gets its answer even where the request would be refused by now.
   * @throws DecidedByKey
   */
  lookUp(): Promise<void>
  /**
   * The answer to a request that threw.
   * @throws what it threw, or the error that the key decided for
   */
  settle(error: unknown): Promise<Reply>
}

export type IdempotencyOf = (
  operationId: string,
  security: Record<string, unknown>,
  key: string | undefined,
  request: KeyedRequest,
) => RequestIdempotency

export const WITHOUT_KEY: RequestIdempotency = {
  isKeyed: false,
  claim: async () => {},
  record: () => [],
  lookUp: async () => {},
  settle: async (error) => {
    throw error
  },
}

/**
 * One transaction under the request's key, where it has one.
 * @param work what it does; its answer is kept
 * @param keeping `personRecordIdOf`: of the record that the answer tells of, where that is a person's
 * @throws what `work` throws, and DecidedByKey
 */
export async function inKeyedTransaction<Status extends number, Body>(
  database: Database,
  idempotency: Idempotency,
  work: (trx: Knex.Transaction) => Promise<{ status: Status; body: Body }>,
  keeping: { personRecordIdOf?: (body: Body) => string; unfinishedForMs?: number } = {},
): Promise<{ status: Status; body: Body }> {
  return database.transaction(async (trx) => {
    const send = sendThrough(trx)
    await idempotency.claim(send)
    const answer = await work(trx)
    const { personRecordIdOf, unfinishedForMs } = keeping
    await send(idempotency.record(answer, { recordId: personRecordIdOf?.(answer.body), unfinishedForMs }))
    return answer
  })
}

interface IdempotencyDeps {
  database: Database
  clock: Clock
  keys: Keys
}

/** @returns a function that throws 400 for a key that is none */
export function createIdempotency(deps: IdempotencyDeps): IdempotencyOf {
  return (operationId, security, key, request) => {
    if (key === undefined || !isIdempotentOperation(operationId)) return WITHOUT_KEY
    requireSoundKey(key)
    const { id: callerId } = (security.integrator ?? security.operatorKey) as { id: string }
    return createForKey(deps, { callerId, operation: operationId, keyHash: hashValue(key) }, request)
  }
}

function createForKey({ database, clock, keys }: IdempotencyDeps, scope: KeyScope, request: KeyedRequest) {
  const bodyHash = hashRequest(keys, request)
  const boundTo = `${scope.callerId}:${scope.operation}:${scope.keyHash.toString('hex')}`

  function decide(row: KeyRow | undefined): void {
    if (!row || isExpired(row.createdAt, clock.now())) return
    if (!row.bodyHash.equals(bodyHash) && !row.bodyHash.equals(formerHash(request))) throw mismatch()
    if (row.answerSealed.length === 0) throw erasedSince()
    throw replayed(JSON.parse(unseal(keys, row.answerSealed, boundTo).toString('utf8')), clock.nowMs())
  }

  async function claim(send: Send): Promise<void> {
    decide(await claimKey(send, scope, bodyHash, clock.now()))
  }

  async function lastWord(soFar: DecidedByKey): Promise<DecidedByKey> {
    try {
      await lookUp()
    } catch (error) {
      if (error instanceof DecidedByKey) return error
      throw error
    }
    return soFar
  }

  function keep(answer: FirstAnswer, recordId?: string): Statement[] {
    const answerSealed = seal(keys, Buffer.from(JSON.stringify(answer), 'utf8'), boundTo)
    const kept = { bodyHash, status: statusOf(answer), answerSealed, createdAt: clock.now(), recordId }
    return [updateKeyStatement(scope, kept)]
  }

  /** Without a transaction, so that nothing that whoever is at it needs is locked. @throws DecidedByKey */
  async function lookUp(): Promise<void> {
    const untilMs = monotonicMs() + WAIT_MS
    for (;;) {
      try {
        return decide(await findKey(database.knex, scope))
      } catch (error) {
        if (!(error instanceof DecidedByKey && error.isUnfinished) || monotonicMs() >= untilMs) throw error
        await sleep(LOOK_AGAIN_MS)
      }
    }
  }

  async function settle(error: unknown): Promise<Reply> {
    if (error instanceof DecidedByKey) return unwrap(error.isUnfinished ? await lastWord(error) : error)
    const refusal = refusalToKeep(error)
    if (!refusal) throw error
    try {
      // A transaction of its own: the handler's is rolled back. Killed in between nothing was done and nothing is kept, and
      // the retry runs anew. Another request may have had the key meanwhile: then its answer counts.
      await database.transaction(async (trx) => {
        const send = sendThrough(trx)
        await claim(send)
        await send(keep(refusal))
      })
    } catch (failure) {
      if (failure instanceof DecidedByKey) return unwrap(failure)
      throw failure
    }
    throw error
  }

  return {
    isKeyed: true,
    claim,
    record: (reply: Reply, { recordId, unfinishedForMs }: Keeping = {}) => {
      const until = unfinishedForMs === undefined ? {} : { unfinishedUntilMs: clock.nowMs() + unfinishedForMs }
      return keep({ reply, ...until }, recordId)
    },
    lookUp,
    settle,
  }
}

function unwrap({ answer }: DecidedByKey): Reply {
  if (answer instanceof DomainError) throw answer
  return answer
}
