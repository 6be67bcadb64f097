/**
 * What a lane needs to send: the endpoint and the signing keys. Read by the daemon for a webhook that it owns the lane of,
 * so this is the one finder without an account.
 */
import type { Knex } from 'knex'
import { unseal, type Keys } from '../crypto.ts'
import { prepareKey, type HmacKey } from '../deliveries/signature.ts'

export interface DeliverySettings {
  endpoint: string
  /** The current key first; during a rotation the one before it too. */
  signingKeys: SigningKey[]
}

export interface SigningKey {
  key: HmacKey
  /** It signs nothing from then on; null: the current one. A lane may run for longer than that. */
  expiresAt: Date | null
}

/** The keys that sign an attempt that starts now, the current one first. */
export function keysAt(settings: DeliverySettings, now: Date): HmacKey[] {
  return settings.signingKeys
    .filter(({ expiresAt }) => expiresAt === null || expiresAt.getTime() > now.getTime())
    .map(({ key }) => key)
}

/** @throws when a stored secret does not open (another SECRETS_KEY, a changed row) */
export async function getDeliverySettings(
  knex: Knex,
  keys: Keys,
  webhookId: string,
  now: Date,
): Promise<DeliverySettings> {
  const webhook = await knex('webhooks').where({ id: webhookId }).first('endpoint')
  if (!webhook) throw new Error(`webhook ${webhookId} has a lane but no row`)
  const secrets = await knex('webhook_secrets')
    .where({ webhook_id: webhookId })
    .where((query) => query.whereNull('expires_at').orWhere('expires_at', '>', now))
    // NULL is the smallest on both servers: the current one.
    .orderBy(['expires_at', { column: 'id', order: 'desc' }])
    .select('sealed', 'expires_at')
  if (secrets.length === 0) throw new Error(`webhook ${webhookId} has no signing secret`)
  const signingKeys = secrets.map((row) => ({
    key: prepareKey(unseal(keys, row.sealed, webhookId)),
    expiresAt: row.expires_at,
  }))
  return { endpoint: webhook.endpoint, signingKeys }
}
