import type { Knex } from 'knex'
import { findClient, holdSecretHashes } from '../accounts/clients-repository.ts'
import { equalInConstantTime, hashSecret } from '../crypto.ts'
import { unauthorized } from '../errors.ts'
import { newId } from '../ids.ts'
import type { HandlerDeps, OpenHandler } from '../handlers.ts'
import { familyNamedBy, newRefreshToken } from './refresh-token.ts'
import { judgePurged, judgeRefresh, REFRESH_TOKEN_TTL_MS, type TokenFamily } from './token-rules.ts'
import {
  claimRefreshToken,
  findTokenFamily,
  insertRefreshToken,
  insertTokenFamily,
  recordFamilyRevoked,
  recordRotation,
} from './tokens-repository.ts'

interface TokenHandlers {
  issueToken: OpenHandler<'issueToken'>
  refreshToken: OpenHandler<'refreshToken'>
}

export function tokenHandlers({ database, clock, keys, accessTokens }: HandlerDeps): TokenHandlers {
  /** A new refresh token as it is stored and as it is shown. */
  function makeRefreshToken(familyId: string) {
    const refreshToken = newRefreshToken(keys, familyId)
    const issuedAt = clock.now()
    const expiresAt = new Date(issuedAt.getTime() + REFRESH_TOKEN_TTL_MS)
    return { refreshToken, row: { tokenHash: hashSecret(refreshToken), familyId, issuedAt, expiresAt } }
  }

  /** Of a token without a row: only one that was made here names a family, so that nobody else learns or ends anything. */
  async function findFamilyNamedBy(trx: Knex.Transaction, refreshToken: string): Promise<TokenFamily | undefined> {
    const familyId = familyNamedBy(keys, refreshToken)
    return familyId === undefined ? undefined : findTokenFamily(trx, familyId)
  }

  async function replyWithTokens(accountId: string, refreshToken: string) {
    const { token, expiresInSeconds } = await accessTokens.issue(accountId)
    return { status: 200 as const, body: { authToken: token, refreshToken, expiresIn: expiresInSeconds } }
  }

  return {
    async issueToken({ body }) {
      const client = await findClient(database.knex, body.clientID)
      const sentHash = hashSecret(body.clientSecret)
      if (!client || !isOneOf(client.secretHashes, sentHash)) throw invalidClientCredentials()
      const familyId = newId(clock.nowMs())
      const { refreshToken, row } = makeRefreshToken(familyId)
      await database.transaction(async (trx) => {
        // A revocation that ends the account's sessions was before, or waits and finds this one.
        if (!isOneOf(await holdSecretHashes(trx, client.clientId), sentHash)) throw invalidClientCredentials()
        await insertTokenFamily(trx, {
          id: familyId,
          clientId: client.clientId,
          accountId: client.accountId,
          createdAt: row.issuedAt,
        })
        await insertRefreshToken(trx, row)
      })
      return replyWithTokens(client.accountId, refreshToken)
    },

    async refreshToken({ body }) {
      const tokenHash = hashSecret(body.refreshToken)
      // The verdict is carried out and committed before anything is thrown: a revocation must outlive its own 401.
      const rotated = await database.transaction(async (trx) => {
        const stored = await claimRefreshToken(trx, tokenHash)
        const now = clock.now()
        const family = stored ?? (await findFamilyNamedBy(trx, body.refreshToken))
        if (!family) return undefined
        const verdict = stored ? judgeRefresh(stored, body.clientID, now) : judgePurged(family, body.clientID)
        if (verdict === 'revoke') await recordFamilyRevoked(trx, family.familyId, now)
        if (verdict !== 'rotate') return undefined
        const { refreshToken, row } = makeRefreshToken(family.familyId)
        await recordRotation(trx, tokenHash, now)
        await insertRefreshToken(trx, row)
        return { accountId: family.accountId, refreshToken }
      })
      if (!rotated) throw invalidClientCredentials()
      return replyWithTokens(rotated.accountId, rotated.refreshToken)
    },
  }
}

/** Every one is compared, so that the time taken does not tell which one was close. */
function isOneOf(hashes: Buffer[], sentHash: Buffer): boolean {
  return hashes.map((hash) => equalInConstantTime(hash, sentHash)).includes(true)
}

/** One answer for an unknown client, a wrong secret, and a refresh token that does not serve. */
function invalidClientCredentials() {
  return unauthorized('invalid client credentials', 'invalid_client_credentials')
}
