import type { Knex } from 'knex'

export interface OperatorKey {
  id: string
  role: string
  /** What the key is bound to; null: every account. */
  accountId: string | null
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
