/**
 * Refresh tokens and their families. A token finds its own account, so the finder has none.
 */
import type { Knex } from 'knex'
import type { StoredRefreshToken, TokenFamily } from './token-rules.ts'

export interface NewRefreshToken {
  tokenHash: Buffer
  familyId: string
  issuedAt: Date
  expiresAt: Date
}

export async function insertTokenFamily(
  trx: Knex.Transaction,
  family: { id: string; clientId: string; accountId: string; createdAt: Date },
): Promise<void> {
  await trx('refresh_token_families').insert({
    id: family.id,
    client_id: family.clientId,
    account_id: family.accountId,
    created_at: family.createdAt,
  })
}

export async function insertRefreshToken(trx: Knex.Transaction, token: NewRefreshToken): Promise<void> {
  await trx('refresh_tokens').insert({
    token_hash: token.tokenHash,
    family_id: token.familyId,
    issued_at: token.issuedAt,
    expires_at: token.expiresAt,
  })
}

/** Locks the token's row: of two calls with one token, the second sees that the first has rotated it. */
export async function claimRefreshToken(
  trx: Knex.Transaction,
  tokenHash: Buffer,
): Promise<StoredRefreshToken | undefined> {
  const token = await trx('refresh_tokens').where({ token_hash: tokenHash }).forUpdate().first()
  if (!token) return undefined
  const family = await findTokenFamily(trx, token.family_id)
  return family && { ...family, expiresAt: token.expires_at, rotatedAt: token.rotated_at }
}

export async function findTokenFamily(trx: Knex.Transaction, familyId: string): Promise<TokenFamily | undefined> {
  const family = await trx('refresh_token_families').where({ id: familyId }).first()
  if (!family) return undefined
  return {
    clientId: family.client_id,
    accountId: family.account_id,
    familyId: family.id,
    familyRevokedAt: family.revoked_at,
  }
}

export async function recordRotation(trx: Knex.Transaction, tokenHash: Buffer, now: Date): Promise<void> {
  await trx('refresh_tokens').where({ token_hash: tokenHash }).update({ rotated_at: now })
}

/** Every token of the family is refused from now on. */
export async function recordFamilyRevoked(trx: Knex.Transaction, familyId: string, now: Date): Promise<void> {
  await trx('refresh_token_families').where({ id: familyId }).whereNull('revoked_at').update({ revoked_at: now })
}

/**
 * Every refresh token of the account is refused from now on; its integrator needs a client secret again.
 * @returns how many sessions this has ended
 */
export async function recordFamiliesOfAccountRevoked(
  trx: Knex.Transaction,
  accountId: string,
  now: Date,
): Promise<number> {
  return trx('refresh_token_families')
    .where({ account_id: accountId })
    .whereNull('revoked_at')
    .update({ revoked_at: now })
}
