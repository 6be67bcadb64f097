import type { Knex } from 'knex'
import type { components } from '../generated/operator.ts'
import { isIdShaped } from '../ids.ts'

export interface OperatorKey {
  id: string
  role: string
  /** What the key is bound to; null: every account. */
  accountId: string | null
}

/** A key as it is kept: never the key itself. */
export interface OperatorKeyRecord extends OperatorKey {
  role: components['schemas']['OperatorRole']
  name: string
  createdAt: Date
  /** null: it serves. */
  revokedAt: Date | null
}

export async function insertOperatorKey(
  knex: Knex,
  key: OperatorKey & { keyHash: Buffer; name: string; createdAt: Date },
): Promise<void> {
  await knex('operator_keys').insert({
    id: key.id,
    key_hash: key.keyHash,
    name: key.name,
    role: key.role,
    account_id: key.accountId,
    created_at: key.createdAt,
  })
}

/** A key that was not revoked. The hash of 256 random bits is what is compared, so its timing says nothing of the key. */
export async function findOperatorKey(knex: Knex, keyHash: Buffer): Promise<OperatorKey | undefined> {
  const row = await knex('operator_keys').where({ key_hash: keyHash }).whereNull('revoked_at').first()
  return row && { id: row.id, role: row.role, accountId: row.account_id }
}

/** Revoked ones too, by id: the oldest first. */
export async function listOperatorKeys(
  knex: Knex,
  afterId: string | undefined,
  limit: number,
): Promise<OperatorKeyRecord[]> {
  const query = knex('operator_keys').orderBy('id').limit(limit)
  if (afterId !== undefined) query.where('id', '>', afterId)
  return (await query).map(toRecord)
}

/**
 * Locks the key, after all admin keys for every account: two calls that each revoke one of the last two come one after the
 * other.
 * @returns undefined when there is no such key; `reachesAll`: how many admin keys for every account serve
 */
export async function claimOperatorKey(
  trx: Knex.Transaction,
  keyId: string,
): Promise<{ key: OperatorKeyRecord; reachesAll: number } | undefined> {
  if (!isIdShaped(keyId)) return undefined
  const admins = await trx('operator_keys')
    .where({ role: 'admin' })
    .whereNull('account_id')
    .whereNull('revoked_at')
    .orderBy('id')
    .forUpdate()
    .select('id')
  const row = await trx('operator_keys').where({ id: keyId }).forUpdate().first()
  return row && { key: toRecord(row), reachesAll: admins.length }
}

export async function recordOperatorKeyRevoked(trx: Knex.Transaction, keyId: string, now: Date): Promise<void> {
  await trx('operator_keys').where({ id: keyId }).whereNull('revoked_at').update({ revoked_at: now })
}

function toRecord(row: Record<string, any>): OperatorKeyRecord {
  return {
    id: row.id,
    role: row.role,
    name: row.name,
    accountId: row.account_id,
    createdAt: row.created_at,
    revokedAt: row.revoked_at,
  }
}
