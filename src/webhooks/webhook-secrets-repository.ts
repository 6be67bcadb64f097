/**
 * Rows of webhook_secrets: the current secret, which never expires by itself, and during a rotation the one before it.
 */
import { randomBytes } from 'node:crypto'
import type { Knex } from 'knex'
import { newId } from '../ids.ts'

/** Of a signing secret (decisions 3). */
const SECRET_BYTES = 32

/** 256 random bits. */
export function newSigningKey(): Buffer {
  return randomBytes(SECRET_BYTES)
}

export async function insertSecret(
  trx: Knex.Transaction,
  webhookId: string,
  sealed: Buffer,
  createdAt: Date,
): Promise<void> {
  await trx('webhook_secrets').insert({
    webhook_id: webhookId,
    id: newId(createdAt.getTime()),
    sealed,
    created_at: createdAt,
  })
}

/**
 * Puts a new secret in the place of the current one, which signs until `previousExpiresAt`; whatever came before that one is
 * gone. The caller holds the webhook's lock, so that rotations come one after the other.
 *
 * `updated_at` always moves, also by two rotations in one millisecond: lanes compare it to see that they must read their
 * keys again.
 */
export async function recordRotation(
  trx: Knex.Transaction,
  webhook: { id: string; updatedAt: Date },
  sealed: Buffer,
  previousExpiresAt: Date,
  now: Date,
): Promise<{ updatedAt: Date }> {
  await trx('webhook_secrets').where({ webhook_id: webhook.id }).whereNotNull('expires_at').delete()
  await trx('webhook_secrets').where({ webhook_id: webhook.id }).update({ expires_at: previousExpiresAt })
  await insertSecret(trx, webhook.id, sealed, now)
  const updatedAt = new Date(Math.max(now.getTime(), webhook.updatedAt.getTime() + 1))
  await trx('webhooks').where({ id: webhook.id }).update({ updated_at: updatedAt })
  return { updatedAt }
}

/** Secrets of the newest webhooks as they are stored, by the primary key: a large table is not looked through. */
export function newestSealedSecrets(knex: Knex, count: number): Promise<Buffer[]> {
  return knex('webhook_secrets').orderBy('webhook_id', 'desc').orderBy('id', 'desc').limit(count).pluck('sealed')
}
