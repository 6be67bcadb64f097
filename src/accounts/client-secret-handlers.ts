/**
 * What an integrator authenticates with. Two secrets may be valid at once, so that one can be replaced while the other serves.
 */
import type { Knex } from 'knex'
import { requireAccountOf, requireRole } from '../auth/operator-rules.ts'
import { recordFamiliesOfAccountRevoked } from '../auth/tokens-repository.ts'
import { hashSecret, newSecret } from '../crypto.ts'
import { conflict, notFound } from '../errors.ts'
import { newId } from '../ids.ts'
import { inKeyedTransaction } from '../idempotency/idempotency.ts'
import type { HandlerDeps, OperatorHandler } from '../handlers.ts'
import { findAccount, type Account } from './accounts-repository.ts'
import {
  claimClient,
  findClientIdOf,
  insertClientSecret,
  listClientSecrets,
  recordClientSecretRevoked,
  type ClientSecretRecord,
} from './clients-repository.ts'

interface ClientSecretHandlers {
  listClientSecrets: OperatorHandler<'listClientSecrets'>
  issueClientSecret: OperatorHandler<'issueClientSecret'>
  rotateClientSecret: OperatorHandler<'rotateClientSecret'>
  revokeClientSecret: OperatorHandler<'revokeClientSecret'>
}

export function clientSecretHandlers({ database, clock }: HandlerDeps): ClientSecretHandlers {
  const { knex } = database

  /** @throws 409 when two are valid already */
  async function issue(trx: Knex.Transaction, account: Account) {
    const clientSecret = newSecret()
    const clientId = await claimClient(trx, account.id, newId(clock.nowMs()), clock.now())
    // The newest one by its time as well, also where the clock was set back since the one before.
    const newest = (await listClientSecrets(trx, account.id)).at(-1)
    const createdAt = new Date(Math.max(clock.nowMs(), newest ? newest.createdAt.getTime() + 1 : 0))
    const secret = { id: newId(createdAt.getTime()), clientId, secretHash: hashSecret(clientSecret), createdAt }
    if (!(await insertClientSecret(trx, secret))) {
      throw conflict('the account already has two valid client secrets', 'too_many_client_secrets')
    }
    return { clientID: clientId, secretId: secret.id, clientSecret }
  }

  return {
    async listClientSecrets({ path, operator }) {
      requireRole(operator, 'admin')
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const clientID = await findClientIdOf(knex, account.id)
      const secrets = await listClientSecrets(knex, account.id)
      return { status: 200, body: { clientID: clientID ?? null, clientSecrets: secrets.map(toSecretRow) } }
    },

    async issueClientSecret({ path, operator, audit, idempotency }) {
      requireRole(operator, 'admin')
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      return inKeyedTransaction(database, idempotency, async (trx) => {
        const issued = await issue(trx, account)
        await audit.record(trx, account.id, { clientID: issued.clientID, secretId: issued.secretId })
        return { status: 201, body: issued }
      })
    },

    async rotateClientSecret({ path, operator, audit, idempotency }) {
      requireRole(operator, 'admin')
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      return inKeyedTransaction(database, idempotency, async (trx) => {
        // Its lock comes before the list of secrets: two rotations at once come one after the other.
        await claimClient(trx, account.id, newId(clock.nowMs()), clock.now())
        const valid = (await listClientSecrets(trx, account.id)).filter(({ revokedAt }) => revokedAt === null)
        for (const { id } of valid.slice(0, -1)) await recordClientSecretRevoked(trx, account.id, id, clock.now())
        const issued = await issue(trx, account)
        await audit.record(trx, account.id, { clientID: issued.clientID, secretId: issued.secretId })
        return { status: 201, body: issued }
      })
    },

    async revokeClientSecret({ path, body, operator, audit }) {
      requireRole(operator, 'admin')
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const secret = await database.transaction(async (trx) => {
        const now = clock.now()
        const revoked = await recordClientSecretRevoked(trx, account.id, path.secretId, now)
        if (!revoked) throw notFound('client secret not found')
        const ended = body.endSessions ? await recordFamiliesOfAccountRevoked(trx, account.id, now) : 0
        if (revoked.changed || ended > 0) await audit.record(trx, account.id, { secretId: revoked.secret.id })
        return revoked.secret
      })
      return { status: 200, body: toSecretRow(secret) }
    },
  }
}

function toSecretRow({ id, createdAt, revokedAt }: ClientSecretRecord) {
  return { secretId: id, createdAt: createdAt.toISOString(), revokedAt: revokedAt?.toISOString() ?? null }
}
