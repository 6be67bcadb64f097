/**
 * Keys of this API, kept by those whose key reaches every account.
 */
import { findAccount } from '../accounts/accounts-repository.ts'
import { hashSecret, newSecret } from '../crypto.ts'
import { conflict, notFound, unknownId } from '../errors.ts'
import { newId } from '../ids.ts'
import { inKeyedTransaction } from '../idempotency/idempotency.ts'
import type { HandlerDeps, OperatorHandler } from '../handlers.ts'
import { cutPage, pageById } from '../paging.ts'
import {
  claimOperatorKey,
  insertOperatorKey,
  listOperatorKeys,
  recordOperatorKeyRevoked,
  type OperatorKeyRecord,
} from './operator-keys-repository.ts'
import { reachesEverything, requireRole, requireUnbound } from './operator-rules.ts'

interface OperatorKeyHandlers {
  listOperatorKeys: OperatorHandler<'listOperatorKeys'>
  createOperatorKey: OperatorHandler<'createOperatorKey'>
  revokeOperatorKey: OperatorHandler<'revokeOperatorKey'>
}

export function operatorKeyHandlers({ database, clock }: HandlerDeps): OperatorKeyHandlers {
  const { knex } = database
  return {
    async listOperatorKeys({ query, operator }) {
      requireRole(operator, 'admin')
      requireUnbound(operator)
      const { limit, afterId } = pageById(query)
      const { shown, nextCursor } = cutPage(await listOperatorKeys(knex, afterId, limit + 1), limit, ({ id }) => [id])
      return { status: 200, body: { keys: shown.map(toKeyRow), nextCursor } }
    },

    async createOperatorKey({ body, operator, audit, idempotency }) {
      requireRole(operator, 'admin')
      requireUnbound(operator)
      const account = body.accountId === undefined ? undefined : await findAccount(knex, body.accountId)
      if (body.accountId !== undefined && !account) throw unknownId('account', body.accountId, 'accountId')
      const key = newSecret()
      const record: OperatorKeyRecord = {
        id: newId(clock.nowMs()),
        role: body.role,
        name: body.name,
        accountId: account?.id ?? null,
        createdAt: clock.now(),
        revokedAt: null,
      }
      return inKeyedTransaction(database, idempotency, async (trx) => {
        await insertOperatorKey(trx, { ...record, keyHash: hashSecret(key) })
        await audit.record(trx, record.accountId, { keyId: record.id })
        return { status: 201, body: { ...toKeyRow(record), key } }
      })
    },

    async revokeOperatorKey({ path, operator, audit }) {
      requireRole(operator, 'admin')
      requireUnbound(operator)
      const revoked = await database.transaction(async (trx) => {
        const claimed = await claimOperatorKey(trx, path.keyId)
        if (!claimed) throw notFound('operator key not found')
        const { key, reachesAll } = claimed
        if (key.revokedAt !== null) return key
        if (reachesEverything(key) && reachesAll === 1) {
          throw conflict('this is the last admin key for all accounts: create another one first', 'last_admin_key')
        }
        const now = clock.now()
        await recordOperatorKeyRevoked(trx, key.id, now)
        await audit.record(trx, key.accountId, { keyId: key.id })
        return { ...key, revokedAt: now }
      })
      return { status: 200, body: toKeyRow(revoked) }
    },
  }
}

function toKeyRow({ id, role, name, accountId, createdAt, revokedAt }: OperatorKeyRecord) {
  return {
    keyId: id,
    name,
    role,
    accountId,
    createdAt: createdAt.toISOString(),
    revokedAt: revokedAt?.toISOString() ?? null,
  }
}
