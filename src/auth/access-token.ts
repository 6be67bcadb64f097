/**
 * The integrator's access token: a JWT with one fixed algorithm. Everything else that a token may claim about how it is to
 * be checked (algorithm, key id, embedded keys) is ignored or refused (RFC 8725).
 */
import { createSecretKey } from 'node:crypto'
import { jwtVerify, SignJWT } from 'jose'
import type { Clock } from '../clock.ts'
import type { Keys } from '../crypto.ts'
import { isIdShaped, newId } from '../ids.ts'
import { isBareHeader, isCanonicalToken } from './token-rules.ts'

const ALGORITHM = 'HS256'
const HMAC = { name: 'HMAC', hash: 'SHA-256' }
const ISSUER = 'laboratory-integration-service'
const AUDIENCE = 'laboratory-integration-service/client'
/** RFC 9068: tells an access token from any other kind that this service signs. */
const TYPE = 'at+jwt'
/** How far the clocks of two processes may be apart. */
const SKEW_SECONDS = 30
/** Ours have about 350 characters; what is longer is not worth a signature check. */
const MAX_LENGTH = 2048
/** Some 10 MB when full. */
const MAX_CACHED = 10_000

interface Verified {
  accountId: string
  expiresAtSeconds: number
}

export interface AccessTokens {
  /** @returns a token for the account and its life in seconds */
  issue(accountId: string): Promise<{ token: string; expiresInSeconds: number }>
  /** @returns the account, or undefined for anything but a valid token */
  verify(token: string): Promise<string | undefined>
}

export function createAccessTokens(keys: Keys, clock: Clock, ttlSeconds: number): AccessTokens {
  /** In the form that signs and checks: jose would make it of the bytes for each token, a third of what one costs. */
  const key = createSecretKey(keys.accessToken).toCryptoKey(HMAC, false, ['sign', 'verify'])
  /** A valid token stays valid until it expires, so its signature is checked once. Oldest first, the oldest one goes. */
  const verified = new Map<string, Verified>()

  async function check(token: string): Promise<Verified | undefined> {
    try {
      const { payload, protectedHeader } = await jwtVerify(token, key, {
        algorithms: [ALGORITHM],
        issuer: ISSUER,
        audience: AUDIENCE,
        typ: TYPE,
        requiredClaims: ['sub', 'jti', 'iat', 'exp'],
        clockTolerance: SKEW_SECONDS,
        currentDate: clock.now(),
      })
      if (!isBareHeader(protectedHeader)) return undefined
      // jose says that the claims are there, not that this one is a string.
      const accountId: unknown = payload.sub
      if (typeof accountId !== 'string' || !isIdShaped(accountId)) return undefined
      return { accountId, expiresAtSeconds: payload.exp! }
    } catch {
      // Whatever is wrong with it, the answer is the same 401; jose throws for nothing but a bad token here.
      return undefined
    }
  }

  return {
    async issue(accountId) {
      const nowSeconds = Math.floor(clock.nowMs() / 1000)
      const token = await new SignJWT()
        .setProtectedHeader({ alg: ALGORITHM, typ: TYPE })
        .setIssuer(ISSUER)
        .setAudience(AUDIENCE)
        .setSubject(accountId)
        .setJti(newId(clock.nowMs()))
        .setIssuedAt(nowSeconds)
        .setExpirationTime(nowSeconds + ttlSeconds)
        .sign(key)
      return { token, expiresInSeconds: ttlSeconds }
    },

    async verify(token) {
      const nowSeconds = Math.floor(clock.nowMs() / 1000)
      const known = verified.get(token)
      if (known) {
        if (known.expiresAtSeconds > nowSeconds - SKEW_SECONDS) return known.accountId
        verified.delete(token)
        return undefined
      }
      if (token.length > MAX_LENGTH || !isCanonicalToken(token)) return undefined
      const checked = await check(token)
      if (!checked) return undefined
      if (verified.size >= MAX_CACHED) verified.delete(verified.keys().next().value!)
      verified.set(token, checked)
      return checked.accountId
    },
  }
}
