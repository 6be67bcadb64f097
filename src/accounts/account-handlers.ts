import { requireAccountOf, requireRole, requireUnbound } from '../auth/operator-rules.ts'
import { insertLab } from '../catalogue/labs-repository.ts'
import { insertParty } from '../catalogue/parties-repository.ts'
import { hashSecret, newSecret } from '../crypto.ts'
import { isTimeZone } from '../crm/zoned-time.ts'
import { badRequest, clipped, conflict } from '../errors.ts'
import { newId } from '../ids.ts'
import type { HandlerDeps, OperatorHandler } from '../operations.ts'
import { findAccount, insertAccount, listAccounts, type Account } from './accounts-repository.ts'
import { claimClient, insertClientSecret } from './clients-repository.ts'

interface AccountHandlers {
  createAccount: OperatorHandler<'createAccount'>
  listAccounts: OperatorHandler<'listAccounts'>
  issueClientSecret: OperatorHandler<'issueClientSecret'>
  createLab: OperatorHandler<'createLab'>
  createParty: OperatorHandler<'createParty'>
}

export function accountHandlers({ database, clock }: HandlerDeps): AccountHandlers {
  const { knex } = database
  return {
    async createAccount({ body, operator }) {
      requireRole(operator, 'admin')
      requireUnbound(operator)
      const timeZone = body.timeZone ?? 'Asia/Kolkata'
      if (!isTimeZone(timeZone)) {
        throw badRequest(`unknown time zone ${clipped(timeZone)}`, 'invalid_request', 'timeZone', 'is unknown')
      }
      const account: Account = {
        id: newId(clock.nowMs()),
        name: body.name,
        mode: body.mode ?? 'catch_all',
        timeZone,
        adminEmail: body.adminEmail,
        createdAt: clock.now(),
      }
      await insertAccount(knex, account)
      return { status: 201, body: toAccountRow(account) }
    },

    async listAccounts({ operator }) {
      requireRole(operator, 'admin')
      const accounts = await listAccounts(knex, operator.accountId ?? undefined)
      return { status: 200, body: { accounts: accounts.map(toAccountRow) } }
    },

    async issueClientSecret({ path, operator }) {
      requireRole(operator, 'admin')
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const createdAt = clock.now()
      const clientSecret = newSecret()
      return database.transaction(async (trx) => {
        const clientId = await claimClient(trx, account.id, newId(clock.nowMs()), createdAt)
        const secret = { id: newId(clock.nowMs()), clientId, secretHash: hashSecret(clientSecret), createdAt }
        if (!(await insertClientSecret(trx, secret))) {
          throw conflict('the account already has two valid client secrets', 'too_many_client_secrets')
        }
        return { status: 201 as const, body: { clientID: clientId, clientSecret } }
      })
    },

    async createLab({ path, body, operator }) {
      requireRole(operator, 'admin')
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const lab = {
        id: newId(clock.nowMs()),
        accountId: account.id,
        name: body.name,
        contact: body.contact,
        adminEmail: null,
        active: true,
        createdAt: clock.now(),
      }
      await insertLab(knex, lab)
      const { id, adminEmail: _, createdAt, ...rest } = lab
      return { status: 201, body: { labID: id, ...rest, createdAt: createdAt.toISOString() } }
    },

    async createParty({ path, body, operator }) {
      requireRole(operator, 'admin')
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const party = {
        id: newId(clock.nowMs()),
        accountId: account.id,
        kind: body.kind,
        name: body.name,
        createdAt: clock.now(),
      }
      await insertParty(knex, party)
      const { id, createdAt, ...rest } = party
      return { status: 201, body: { partyId: id, ...rest, createdAt: createdAt.toISOString() } }
    },
  }
}

function toAccountRow({ id, createdAt, ...rest }: Account) {
  return { accountId: id, ...rest, createdAt: createdAt.toISOString() }
}
