/**
 * The patient's token: a JWT of a kind, an audience and a key of its own, so that neither it nor an access token can stand
 * in for the other. It names the contact by its hash only.
 */
import { jwtVerify, SignJWT } from 'jose'
import { isBareHeader, isCanonicalToken } from '../auth/token-rules.ts'
import type { Clock } from '../clock.ts'
import type { Keys } from '../crypto.ts'
import { unauthorized, type DomainError } from '../errors.ts'
import { newId } from '../ids.ts'

const ALGORITHM = 'HS256'
const ISSUER = 'laboratory-integration-service'
const AUDIENCE = 'laboratory-integration-service/patient'
const TYPE = 'pt+jwt'
const TTL_SECONDS = 30 * 60

export interface PatientClaims {
  accountId: string
  contactHash: Buffer
  /** Of the login: a later login of the contact has another. */
  loginEpoch: number
}

export interface PatientTokens {
  issue(claims: PatientClaims): Promise<string>
  /** @returns what a valid token says, or undefined for anything else */
  verify(token: string): Promise<PatientClaims | undefined>
}

export function createPatientTokens(keys: Keys, clock: Clock): PatientTokens {
  return {
    issue({ accountId, contactHash, loginEpoch }) {
      const nowSeconds = Math.floor(clock.nowMs() / 1000)
      return new SignJWT({ contact: contactHash.toString('base64url'), epoch: loginEpoch })
        .setProtectedHeader({ alg: ALGORITHM, typ: TYPE })
        .setIssuer(ISSUER)
        .setAudience(AUDIENCE)
        .setSubject(accountId)
        .setJti(newId(clock.nowMs()))
        .setIssuedAt(nowSeconds)
        .setExpirationTime(nowSeconds + TTL_SECONDS)
        .sign(keys.patientToken)
    },

    async verify(token) {
      if (!isCanonicalToken(token)) return undefined
      try {
        const { payload, protectedHeader } = await jwtVerify(token, keys.patientToken, {
          algorithms: [ALGORITHM],
          issuer: ISSUER,
          audience: AUDIENCE,
          typ: TYPE,
          requiredClaims: ['sub', 'jti', 'iat', 'exp', 'contact', 'epoch'],
          currentDate: clock.now(),
        })
        if (!isBareHeader(protectedHeader)) return undefined
        const { sub, contact, epoch } = payload
        if (typeof sub !== 'string' || typeof contact !== 'string' || typeof epoch !== 'number') return undefined
        return { accountId: sub, contactHash: Buffer.from(contact, 'base64url'), loginEpoch: epoch }
      } catch {
        // Whatever is wrong with it, the answer is the same 401.
        return undefined
      }
    },
  }
}

/** One answer for a patient token that is missing, malformed, expired, void or another account's. */
export function invalidPatientToken(): DomainError {
  return unauthorized('invalid patient token', 'invalid_patient_token')
}
