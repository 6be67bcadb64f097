/**
 * What a lane needs to send: the endpoint and the signing keys. Read by the daemon for a webhook that it owns the lane of,
 * so this is the one finder without an account.
 */
import type { Knex } from 'knex'
import type { BatchResult, Statement } from '../../db/batch.ts'
import { unseal, type Keys } from '../crypto.ts'
import { prepareKey, type HmacKey } from '../deliveries/signature.ts'

export interface DeliverySettings {
  /** Whose webhook it is. */
  accountId: string
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
  const [settings] = await listDeliverySettings(knex, keys, [webhookId], now)
  if (settings instanceof Error) throw settings
  return settings!
}

/** @returns for each webhook, in the order asked, its settings, or why they can't be used: one must not keep the others */
export async function listDeliverySettings(
  knex: Knex,
  keys: Keys,
  webhookIds: string[],
  now: Date,
): Promise<(DeliverySettings | Error)[]> {
  const read: BatchResult[] = []
  for (const { sql, values } of settingsStatements(webhookIds, now))
    read.push((await knex.raw(sql, values as never))[0])
  return openSettings(keys, webhookIds, read)
}

/** What `openSettings` reads. */
export function settingsStatements(webhookIds: string[], now: Date): Statement[] {
  return [
    { sql: 'SELECT id, account_id, endpoint FROM webhooks WHERE id IN (?)', values: [webhookIds] },
    {
      // NULL is the smallest on both servers: the current one.
      sql: `SELECT webhook_id, sealed, expires_at FROM webhook_secrets
            WHERE webhook_id IN (?) AND (expires_at IS NULL OR expires_at > ?) ORDER BY expires_at, id DESC`,
      values: [webhookIds, now],
    },
  ]
}

export function openSettings(keys: Keys, webhookIds: string[], read: BatchResult[]): (DeliverySettings | Error)[] {
  const [webhooks, secrets] = read
  const rowsOf = new Map(webhooks!.map((row) => [row.id as string, row]))
  const secretsOf = Map.groupBy(secrets!, (row) => row.webhook_id as string)
  return webhookIds.map((webhookId) => {
    const webhook = rowsOf.get(webhookId)
    if (!webhook) return new Error(`webhook ${webhookId} has a lane but no row`)
    const rows = secretsOf.get(webhookId)
    if (!rows) return new Error(`webhook ${webhookId} has no signing secret`)
    try {
      const { account_id: accountId, endpoint } = webhook
      return { accountId, endpoint, signingKeys: rows.map((row) => openKey(keys, webhookId, row)) }
    } catch (error) {
      return error as Error
    }
  })
}

/** Then all are opened anew: those of webhooks that have gone would stay for ever. */
const MOST_OPENED = 10_000

/**
 * Signing keys that were opened, by what they were sealed as. A quiet webhook's lane is taken for each of its events, and opening its
 * secret was a tenth of what the daemon did for it.
 */
const opened = new WeakMap<Keys, Map<string, HmacKey>>()

function openKey(keys: Keys, webhookId: string, row: BatchResult[number]): SigningKey {
  let known = opened.get(keys)
  if (!known) opened.set(keys, (known = new Map()))
  // With the webhook's id, to which the seal is bound: moved to another row it must not open.
  const sealed = `${webhookId} ${row.sealed.toString('latin1')}`
  let key = known.get(sealed)
  if (!key) {
    key = prepareKey(unseal(keys, row.sealed, webhookId))
    if (known.size >= MOST_OPENED) known.clear()
    known.set(sealed, key)
  }
  return { key, expiresAt: row.expires_at }
}
