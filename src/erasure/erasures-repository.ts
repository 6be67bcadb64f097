/**
 * Rows of `erasures`: an order to erase a patient, and how far it has come. Each step writes it in its own transaction.
 */
import type { Knex } from 'knex'
import { isSealedUnder, seal, unseal, type Keys } from '../crypto.ts'
import { emptyAnswersAbout } from '../idempotency/idempotency-keys-repository.ts'
import { isIdShaped } from '../ids.ts'
import { NO_COUNTS, type Erasure, type ErasureCounts, type ErasurePhase, type ErasureSubject } from './erasure-rules.ts'

const sealName = (erasureId: string) => `erasure:${erasureId}`

export async function insertErasure(trx: Knex.Transaction, keys: Keys, erasure: Erasure): Promise<void> {
  await trx('erasures').insert({
    id: erasure.id,
    account_id: erasure.accountId,
    state: erasure.state,
    phase: erasure.phase,
    subject: sealSubject(keys, erasure),
    counts: JSON.stringify(erasure.counts),
    created_at: erasure.createdAt,
    updated_at: erasure.updatedAt,
  })
}

export async function findErasure(
  knex: Knex,
  keys: Keys,
  accountId: string,
  erasureId: string,
): Promise<Erasure | undefined> {
  if (!isIdShaped(erasureId)) return undefined
  const row = await knex('erasures').where({ account_id: accountId, id: erasureId }).first()
  return row && toErasure(row, keys)
}

/**
 * Those that run, of every account: for whoever carries them on.
 * @param afterId those behind this one
 */
export async function listRunningErasures(knex: Knex, afterId: string, limit: number): Promise<string[]> {
  return knex('erasures').where({ state: 'running' }).where('id', '>', afterId).orderBy('id').limit(limit).pluck('id')
}

/** Locks one that runs for a step. @returns undefined when it is done, or somebody else does a step of it */
export async function claimErasure(trx: Knex.Transaction, keys: Keys, erasureId: string): Promise<Erasure | undefined> {
  const row = await trx('erasures').where({ id: erasureId, state: 'running' }).forUpdate().skipLocked().first()
  return row && toErasure(row, keys)
}

/** What a step has added, in the transaction of what it did: a crash loses both or neither. */
export async function recordStep(trx: Knex.Transaction, keys: Keys, erasure: Erasure, now: Date): Promise<void> {
  await trx('erasures')
    .where({ id: erasure.id })
    .update({
      phase: erasure.phase,
      lab_id: erasure.labId,
      position: erasure.position,
      ...(erasure.subject && { subject: sealSubject(keys, erasure) }),
      counts: JSON.stringify(erasure.counts),
      updated_at: now,
    })
}

/** Goes on with the events of what it has found by now. */
export async function recordGivenUp(trx: Knex.Transaction, erasureId: string, now: Date): Promise<void> {
  const phase: ErasurePhase = 'events'
  await trx('erasures')
    .where({ id: erasureId })
    .update({ phase, lab_id: null, position: null, subject: null, updated_at: now })
}

/** Whom it was about is gone with it. */
export async function recordErasureEnd(
  trx: Knex.Transaction,
  erasureId: string,
  state: 'completed' | 'failed',
  now: Date,
): Promise<void> {
  await trx('erasures')
    .where({ id: erasureId })
    .update({ state, subject: null, lab_id: null, position: null, finished_at: now, updated_at: now })
}

export type RecordKind = 'entry' | 'pre_booking' | 'bill' | 'report' | 'patient'

/** One that an earlier step had already is no fault. */
export async function insertErasedRecords(
  trx: Knex.Transaction,
  erasureId: string,
  kind: RecordKind,
  recordIds: string[],
): Promise<void> {
  if (recordIds.length === 0) return
  const rows = recordIds.map((id) => ({ erasure_id: erasureId, record_id: id, kind }))
  await trx('erased_records').insert(rows).onConflict().ignore()
  await emptyAnswersAbout(trx, recordIds)
}

/** Of these ids those that an erasure of the account has taken the person out of. */
export async function listErasedRecords(knex: Knex, accountId: string, recordIds: string[]): Promise<Set<string>> {
  const rows = await knex('erased_records as r')
    .join('erasures as e', 'e.id', 'r.erasure_id')
    .where({ 'e.account_id': accountId })
    .whereIn('r.record_id', recordIds)
    .select('r.record_id')
  return new Set(rows.map((row) => row.record_id))
}

function sealSubject(keys: Keys, { id, subject }: Erasure): Buffer {
  return seal(keys, Buffer.from(JSON.stringify(subject)), sealName(id))
}

/** @returns null where it was sealed with another key */
function openSubject(keys: Keys, erasureId: string, sealed: Buffer): ErasureSubject | null {
  if (!isSealedUnder(keys, sealed)) return null
  // One that an earlier version has written knows of no people.
  return { people: [], ...JSON.parse(unseal(keys, sealed, sealName(erasureId)).toString('utf8')) }
}

function toErasure(row: Record<string, any>, keys: Keys): Erasure {
  return {
    id: row.id,
    accountId: row.account_id,
    state: row.state,
    phase: row.phase,
    labId: row.lab_id,
    position: row.position,
    subject: row.subject && openSubject(keys, row.id, row.subject),
    isGivenUp: row.state === 'running' && row.subject === null,
    counts: { ...NO_COUNTS, ...JSON.parse(row.counts) } as ErasureCounts,
    createdAt: row.created_at,
    updatedAt: row.updated_at,
    finishedAt: row.finished_at,
  }
}
