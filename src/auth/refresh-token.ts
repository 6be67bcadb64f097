/**
 * The text of a refresh token: 256 random bits, the id of its family and a MAC of both, in base64url. A token is found by its
 * hash. The id serves once its row is purged: one that was used and comes back then still ends its family, and no family
 * needs a row for each of its uses for as long as it lives.
 */
import { randomBytes } from 'node:crypto'
import { equalInConstantTime, hmacSha256, type Keys } from '../crypto.ts'

const RANDOM_BYTES = 32
const ID_BYTES = 26
const SIGNED_BYTES = RANDOM_BYTES + ID_BYTES
/** 90 bytes are 120 letters and no spare bit, so that no second text stands for the same bytes. */
const SHAPE = /^[A-Za-z0-9_-]{120}$/

export function newRefreshToken(keys: Keys, familyId: string): string {
  const signed = Buffer.concat([randomBytes(RANDOM_BYTES), Buffer.from(familyId, 'ascii')])
  return Buffer.concat([signed, hmacSha256(keys.refreshToken, signed)]).toString('base64url')
}

/** @returns the family that the token was made for; undefined where it was not made here, under this SECRETS_KEY */
export function familyNamedBy(keys: Keys, token: string): string | undefined {
  if (!SHAPE.test(token)) return undefined
  const bytes = Buffer.from(token, 'base64url')
  const signed = bytes.subarray(0, SIGNED_BYTES)
  if (!equalInConstantTime(hmacSha256(keys.refreshToken, signed), bytes.subarray(SIGNED_BYTES))) return undefined
  return signed.toString('ascii', RANDOM_BYTES)
}
