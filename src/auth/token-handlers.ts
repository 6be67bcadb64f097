import { findClient, holdSecretHashes } from '../accounts/clients-repository.ts'
import { equalInConstantTime, hashSecret, newSecret } from '../crypto.ts'
import { unauthorized } from '../errors.ts'
import { newId } from '../ids.ts'
import type { HandlerDeps, OpenHandler } from '../handlers.ts'
import { judgeRefresh, REFRESH_TOKEN_TTL_MS } from './token-rules.ts'
import {
  claimRefreshToken,
  insertRefreshToken,
  insertTokenFamily,
  recordFamilyRevoked,
  recordRotation,
} from './tokens-repository.ts'

interface TokenHandlers {
  issueToken: OpenHandler<'issueToken'>
  refreshToken: OpenHandler<'refreshToken'>
}

export function tokenHandlers({ database, clock, accessTokens }: HandlerDeps): TokenHandlers {
  /** A new refresh token as it is stored and as it is shown. */
  function makeRefreshToken(familyId: string) {
    const refreshToken = newSecret()
    const issuedAt = clock.now()
    const expiresAt = new Date(issuedAt.getTime() + REFRESH_TOKEN_TTL_MS)
    return { refreshToken, row: { tokenHash: hashSecret(refreshToken), familyId, issuedAt, expiresAt } }
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
        const verdict = judgeRefresh(stored, body.clientID, now)
        if (!stored || verdict === 'refuse') return undefined
        if (verdict === 'revoke') {
          await recordFamilyRevoked(trx, stored.familyId, now)
          return undefined
        }
        const { refreshToken, row } = makeRefreshToken(stored.familyId)
        await recordRotation(trx, tokenHash, now)
        await insertRefreshToken(trx, row)
        return { accountId: stored.accountId, refreshToken }
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
