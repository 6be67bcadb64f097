/**
 * Signatures as Standard Webhooks defines them: HMAC-SHA256 over `id.timestamp.body`.
 * Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
 */
import { hash } from 'node:crypto'

const PREFIX = 'whsec_'

/** `whsec_` and 32 random bytes in base64: what an integrator is shown once. */
export function formatSecret(key: Buffer): string {
  return PREFIX + key.toString('base64')
}

/** SHA-256 works in blocks of so many bytes (RFC 2104: B). */
const BLOCK_BYTES = 64
const DIGEST_BYTES = 32

/** A key as HMAC begins its two hashes with it (RFC 2104): made once, used for every attempt. */
export interface HmacKey {
  inner: Buffer
  outer: Buffer
}

export function prepareKey(key: Buffer): HmacKey {
  const short = key.length > BLOCK_BYTES ? hash('sha256', key, 'buffer') : key
  const padded = (pad: number) => {
    const block = Buffer.alloc(BLOCK_BYTES, pad)
    for (const [index, byte] of short.entries()) block[index]! ^= byte
    return block
  }
  return { inner: padded(0x36), outer: padded(0x5c) }
}

/** What is hashed is put together here, behind the key's block; it grows with the largest body seen. */
let scratch = Buffer.alloc(32_768)
/** As much of it as is hashed. */
let message = scratch.subarray(0, 0)
const outerScratch = Buffer.alloc(BLOCK_BYTES + DIGEST_BYTES)

/**
 * The value of `webhook-signature`.
 *
 * HMAC from two hashes in one call each: `createHmac` makes an object with a finalizer for every signature, which costs the
 * daemon three times as much as the hashing.
 * @param keys the current key, and during a rotation the one before it: a signature each, separated by spaces
 * @param timestampSeconds of the attempt, since 1970
 * @param body the exact bytes that are sent
 */
export function sign(keys: (Buffer | HmacKey)[], webhookId: string, timestampSeconds: number, body: Buffer): string {
  const prefix = `${webhookId}.${timestampSeconds}.`
  const mostBytes = BLOCK_BYTES + Buffer.byteLength(prefix) + body.length
  if (mostBytes > scratch.length) scratch = Buffer.alloc(mostBytes)
  const bodyAt = BLOCK_BYTES + scratch.write(prefix, BLOCK_BYTES)
  scratch.set(body, bodyAt)
  // Most bodies of a webhook are equally long.
  const end = bodyAt + body.length
  if (message.buffer !== scratch.buffer || message.length !== end) message = scratch.subarray(0, end)
  let signatures = ''
  for (const key of keys) {
    const signature = digest('inner' in key ? key : prepareKey(key))
    signatures += signatures === '' ? `v1,${signature}` : ` v1,${signature}`
  }
  return signatures
}

/** Of `message`, whose first block is for the key. A digest as text takes half as long as one as a buffer. */
function digest({ inner, outer }: HmacKey): string {
  scratch.set(inner)
  const innerDigest = hash('sha256', message, 'binary')
  outerScratch.set(outer)
  outerScratch.write(innerDigest, BLOCK_BYTES, 'binary')
  return hash('sha256', outerScratch, 'base64')
}
