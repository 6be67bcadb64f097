/**
 * Rows of idempotency keys. A row is written by the transaction that does what the request asks for and is seen by others
 * only with its answer, so that neither is ever there without the other. The column `account_id` holds whoever calls.
 */
import type { Knex } from 'knex'
import type { Send, Statement } from '../../db/batch.ts'
import { isLockWaitTimeout } from '../../db/connection.ts'
import { inProgress, type KeyScope } from './idempotency-rules.ts'

export interface KeyRow {
  bodyHash: Buffer
  /** Empty: it told of a person who has been erased since. */
  answerSealed: Buffer
  createdAt: Date
}

export async function findKey(knex: Knex, { callerId, operation, keyHash }: KeyScope): Promise<KeyRow | undefined> {
  const row = await knex('idempotency_keys').where({ account_id: callerId, operation, key_hash: keyHash }).first()
  return row && toKeyRow(row)
}

/**
 * Locks the key's row until the transaction ends, made where it is missing. The insert that changes nothing takes the row's
 * exclusive lock at once: of several requests the first goes on, and each other one waits for its end. If that was a rollback,
 * the next goes on in its place.
 * @returns the row of an earlier request; undefined: this one is the first
 * @throws DecidedByKey with 409 when the one before still runs after `innodb_lock_wait_timeout`. Only this statement can wait
 *   for the key: any other lock wait is told apart by where it happens, and run again.
 */
export async function claimKey(
  send: Send,
  { callerId, operation, keyHash }: KeyScope,
  bodyHash: Buffer,
  now: Date,
): Promise<KeyRow | undefined> {
  try {
    const [, rows] = await send([
      {
        sql: `INSERT INTO idempotency_keys (account_id, operation, key_hash, body_hash, created_at) VALUES (?, ?, ?, ?, ?)
          ON DUPLICATE KEY UPDATE account_id = account_id`,
        values: [callerId, operation, keyHash, bodyHash, now],
      },
      {
        sql: `SELECT body_hash, answer, created_at FROM idempotency_keys
          WHERE account_id = ? AND operation = ? AND key_hash = ? FOR UPDATE`,
        values: [callerId, operation, keyHash],
      },
    ])
    const row = rows![0]!
    return row.answer === null ? undefined : toKeyRow(row)
  } catch (error) {
    if (isLockWaitTimeout(error)) throw inProgress()
    throw error
  }
}

/** What is kept of a first answer. */
export interface KeptAnswer extends KeyRow {
  status: number
  /** The record it tells of, where that is a person's. */
  recordId: string | undefined
}

/** Under the row's lock. All of it, because the row may be an expired one. */
export function updateKeyStatement({ callerId, operation, keyHash }: KeyScope, kept: KeptAnswer): Statement {
  const { bodyHash, status, answerSealed, createdAt, recordId } = kept
  return {
    sql: `UPDATE idempotency_keys SET body_hash = ?, status = ?, answer = ?, created_at = ?, record_id = ?
      WHERE account_id = ? AND operation = ? AND key_hash = ?`,
    values: [bodyHash, status, answerSealed, createdAt, recordId ?? null, callerId, operation, keyHash],
  }
}

/** For a list of more than 200 both servers guess what each finds, by rows that mostly tell of no record, and read all of them. */
const MOST_RECORDS = 100

/** Takes the person out of the answers that tell of these records. Their keys stay, so that a repeat does not make them anew. */
export async function emptyAnswersAbout(trx: Knex.Transaction, recordIds: string[]): Promise<void> {
  for (let from = 0; from < recordIds.length; from += MOST_RECORDS) {
    const some = recordIds.slice(from, from + MOST_RECORDS)
    const answers = trx('idempotency_keys').whereIn('record_id', some)
    await answers.update({ answer: Buffer.alloc(0) })
  }
}

function toKeyRow(row: Record<string, any>): KeyRow {
  return { bodyHash: row.body_hash, answerSealed: row.answer, createdAt: row.created_at }
}
