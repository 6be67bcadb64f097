/**
 * A client ID and its secrets. The finder by client ID has no account: it is what finds the account.
 */
import type { Knex } from 'knex'
import { isDuplicate } from '../../db/connection.ts'
import { isIdShaped } from '../ids.ts'

/** Two may be valid at once, so that one can be rotated while the other serves. */
const SECRET_SLOTS = [1, 2]

export interface Client {
  clientId: string
  accountId: string
  /** Of the valid secrets. */
  secretHashes: Buffer[]
}

/**
 * The client ID of the account; `newClientId` becomes it where there is none yet. The account's row is locked meanwhile, so
 * that two calls at once don't make two clients.
 */
export async function claimClient(
  trx: Knex.Transaction,
  accountId: string,
  newClientId: string,
  now: Date,
): Promise<string> {
  await trx('accounts').where({ id: accountId }).forUpdate().first('id')
  const existing = await trx('clients').where({ account_id: accountId }).orderBy('client_id').first('client_id')
  if (existing) return existing.client_id
  await trx('clients').insert({ client_id: newClientId, account_id: accountId, created_at: now })
  return newClientId
}

/** The client of an account that still exists. */
export async function findClient(knex: Knex, clientId: string): Promise<Client | undefined> {
  if (!isIdShaped(clientId)) return undefined
  const rows = await knex('clients as c')
    .join('accounts as a', 'a.id', 'c.account_id')
    .leftJoin('client_secrets as s', (join) => join.on('s.client_id', 'c.client_id').andOnNotNull('s.slot'))
    .where('c.client_id', clientId)
    .select('c.account_id', 's.secret_hash')
  if (rows.length === 0) return undefined
  return {
    clientId,
    accountId: rows[0].account_id,
    secretHashes: rows.flatMap((row) => (row.secret_hash === null ? [] : [row.secret_hash])),
  }
}

/** Valid secrets, held until the transaction ends: none of them is revoked meanwhile. */
export async function holdSecretHashes(trx: Knex.Transaction, clientId: string): Promise<Buffer[]> {
  return trx('client_secrets').where({ client_id: clientId }).whereNotNull('slot').forShare().pluck('secret_hash')
}

/**
 * Takes a free slot: the unique key over (client, slot) decides, so that two calls at once can't both take the last one.
 * @returns whether one was free
 */
export async function insertClientSecret(
  trx: Knex.Transaction,
  secret: { id: string; clientId: string; secretHash: Buffer; createdAt: Date },
): Promise<boolean> {
  for (const slot of SECRET_SLOTS) {
    try {
      await trx('client_secrets').insert({
        id: secret.id,
        client_id: secret.clientId,
        slot,
        secret_hash: secret.secretHash,
        created_at: secret.createdAt,
      })
      return true
    } catch (error) {
      if (!isDuplicate(error)) throw error
    }
  }
  return false
}

/** A secret as the operator sees it: never its hash. */
export interface ClientSecretRecord {
  id: string
  createdAt: Date
  /** null: it is valid. */
  revokedAt: Date | null
}

/** undefined: the account has had no secret yet. */
export async function findClientIdOf(knex: Knex, accountId: string): Promise<string | undefined> {
  const row = await knex('clients').where({ account_id: accountId }).orderBy('client_id').first('client_id')
  return row?.client_id
}

/** Revoked ones too, the oldest first. */
export async function listClientSecrets(knex: Knex, accountId: string): Promise<ClientSecretRecord[]> {
  const rows = await ofAccount(knex, accountId).orderBy(['s.created_at', 's.id']).select('s.*')
  return rows.map(toSecretRecord)
}

/**
 * Frees the secret's slot. A secret that is revoked already stays as it is.
 * @returns undefined when the account has no such secret; `changed`: whether this call has revoked it
 */
export async function recordClientSecretRevoked(
  trx: Knex.Transaction,
  accountId: string,
  secretId: string,
  now: Date,
): Promise<{ secret: ClientSecretRecord; changed: boolean } | undefined> {
  if (!isIdShaped(secretId)) return undefined
  const row = await ofAccount(trx, accountId).where('s.id', secretId).forUpdate().first('s.*')
  if (!row) return undefined
  if (row.revoked_at !== null) return { secret: toSecretRecord(row), changed: false }
  await trx('client_secrets').where({ id: secretId }).update({ slot: null, revoked_at: now })
  return { secret: toSecretRecord({ ...row, revoked_at: now }), changed: true }
}

function ofAccount(knex: Knex, accountId: string): Knex.QueryBuilder {
  return knex('client_secrets as s').join('clients as c', 'c.client_id', 's.client_id').where('c.account_id', accountId)
}

function toSecretRecord(row: Record<string, any>): ClientSecretRecord {
  return { id: row.id, createdAt: row.created_at, revokedAt: row.revoked_at }
}
