/**
 * Signatures as Standard Webhooks defines them: HMAC-SHA256 over `id.timestamp.body`.
 * Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
 */
import { createHmac, type KeyObject } from 'node:crypto'

const PREFIX = 'whsec_'

/** `whsec_` and 32 random bytes in base64: what an integrator is shown once. */
export function formatSecret(key: Buffer): string {
  return PREFIX + key.toString('base64')
}

/**
 * The value of `webhook-signature`.
 * @param keys the current key, and during a rotation the one before it: a signature each, separated by spaces
 * @param timestampSeconds of the attempt, since 1970
 * @param body the exact bytes that are sent
 */
export function sign(keys: (Buffer | KeyObject)[], webhookId: string, timestampSeconds: number, body: Buffer): string {
  return keys
    .map((key) => {
      const digest = createHmac('sha256', key).update(`${webhookId}.${timestampSeconds}.`).update(body).digest('base64')
      return `v1,${digest}`
    })
    .join(' ')
}
